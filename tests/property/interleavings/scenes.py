"""All scenes, by name."""

from __future__ import annotations

from tests.property.interleavings.publishing import (
    DeletionAgainstPublish,
    OneBatchTwice,
    OneBatchWithTwoContents,
    PublishAgainstPublish,
    PurgeAgainstPublish,
)
from tests.property.interleavings.reading import (
    AckAgainstExpiry,
    BurialAgainstBurial,
    BurialAgainstRelease,
    ExtensionAgainstExpiry,
    LeaseAgainstLease,
    LeaseAgainstRelease,
    LeaseWithinALimit,
    OrderAgainstExtension,
    OrderAgainstSettle,
    OrderOfTwo,
    RejectAgainstExpiry,
    SettleAgainstCondemnation,
    SettleAgainstExpiry,
    SettleAgainstSettle,
    StopAgainstReplay,
)
from tests.property.interleavings.redriving import RedriveAgainstPurge, RedriveAgainstRedrive
from tests.property.interleavings.scene import Scene
from tests.property.interleavings.upkeep import (
    FinaliseAgainstFinalise,
    FinaliseAgainstRegistration,
    FinaliseAgainstSeek,
    PatientSweepAgainstPublish,
    RemovalAgainstLease,
    RemovalAgainstSettle,
    SeekAgainstLease,
    SeekAgainstRelease,
    SeekAgainstReplay,
    SeekAgainstSettle,
    SweepAgainstSlowPublish,
)

SCENES: dict[str, type[Scene]] = {
    "publish against publish": PublishAgainstPublish,
    "one batch twice": OneBatchTwice,
    "one batch with two contents": OneBatchWithTwoContents,
    "lease against lease": LeaseAgainstLease,
    "lease within a limit": LeaseWithinALimit,
    "settle against expiry": SettleAgainstExpiry,
    "reject against expiry": RejectAgainstExpiry,
    "ack against expiry": AckAgainstExpiry,
    "settle against settle": SettleAgainstSettle,
    "extension against expiry": ExtensionAgainstExpiry,
    "settle against condemnation": SettleAgainstCondemnation,
    "stop against replay": StopAgainstReplay,
    "burial against burial": BurialAgainstBurial,
    "lease against release": LeaseAgainstRelease,
    "burial against release": BurialAgainstRelease,
    "order against settle": OrderAgainstSettle,
    "order against extension": OrderAgainstExtension,
    "order of two": OrderOfTwo,
    "finalise against registration": FinaliseAgainstRegistration,
    "finalise against seek": FinaliseAgainstSeek,
    "finalise against finalise": FinaliseAgainstFinalise,
    "sweep against slow publish": SweepAgainstSlowPublish,
    "patient sweep against publish": PatientSweepAgainstPublish,
    "seek against lease": SeekAgainstLease,
    "seek against settle": SeekAgainstSettle,
    "seek against release": SeekAgainstRelease,
    "seek against replay": SeekAgainstReplay,
    "removal against lease": RemovalAgainstLease,
    "removal against settle": RemovalAgainstSettle,
    "purge against publish": PurgeAgainstPublish,
    "deletion against publish": DeletionAgainstPublish,
    "redrive against redrive": RedriveAgainstRedrive,
    "redrive against purge": RedriveAgainstPurge,
}
