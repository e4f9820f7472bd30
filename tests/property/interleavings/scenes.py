"""All scenes, by name."""

from __future__ import annotations

from tests.property.interleavings.publishing import (
    DeletionAgainstPublish,
    OneBatchTwice,
    PublishAgainstPublish,
    PurgeAgainstPublish,
)
from tests.property.interleavings.reading import (
    AckAgainstExpiry,
    BurialAgainstBurial,
    ExtensionAgainstExpiry,
    LeaseAgainstLease,
    LeaseWithinALimit,
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
    SeekAgainstLease,
    SweepAgainstSlowPublish,
)

SCENES: dict[str, type[Scene]] = {
    "publish against publish": PublishAgainstPublish,
    "one batch twice": OneBatchTwice,
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
    "finalise against registration": FinaliseAgainstRegistration,
    "finalise against seek": FinaliseAgainstSeek,
    "finalise against finalise": FinaliseAgainstFinalise,
    "sweep against slow publish": SweepAgainstSlowPublish,
    "patient sweep against publish": PatientSweepAgainstPublish,
    "seek against lease": SeekAgainstLease,
    "removal against lease": RemovalAgainstLease,
    "purge against publish": PurgeAgainstPublish,
    "deletion against publish": DeletionAgainstPublish,
    "redrive against redrive": RedriveAgainstRedrive,
    "redrive against purge": RedriveAgainstPurge,
}
