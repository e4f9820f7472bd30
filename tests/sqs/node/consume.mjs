// sqs-consumer at a queue of 20 messages, in batches: one handler fails, one takes longer than the
// message is hidden. Prints how often each message was handled.
import {
  CreateQueueCommand,
  GetQueueAttributesCommand,
  SendMessageBatchCommand,
  SQSClient,
} from "@aws-sdk/client-sqs";
import { Consumer } from "sqs-consumer";
import { setTimeout } from "node:timers/promises";

const MESSAGES = 20;
const HIDDEN = "4";
const sqs = new SQSClient({});
const { QueueUrl } = await sqs.send(
  new CreateQueueCommand({ QueueName: "orders", Attributes: { VisibilityTimeout: HIDDEN } }),
);
for (let first = 0; first < MESSAGES; first += 10) {
  const Entries = Array.from({ length: 10 }, (_, at) => ({
    Id: `m${at}`,
    MessageBody: `order ${first + at}`,
    MessageAttributes: { number: { DataType: "Number", StringValue: `${first + at}` } },
  }));
  const { Failed } = await sqs.send(new SendMessageBatchCommand({ QueueUrl, Entries }));
  if (Failed) throw new Error(JSON.stringify(Failed));
}

const handled = new Map();
const failures = [];
const consumer = Consumer.create({
  queueUrl: QueueUrl,
  sqs,
  batchSize: 10,
  waitTimeSeconds: 5,
  visibilityTimeout: 4,
  heartbeatInterval: 1,
  terminateVisibilityTimeout: true,
  messageAttributeNames: ["All"],
  messageSystemAttributeNames: ["ApproximateReceiveCount"],
  handleMessage: async (message) => {
    const number = Number(message.MessageAttributes.number.StringValue);
    const times = (handled.get(number) ?? 0) + 1;
    handled.set(number, times);
    if (Number(message.Attributes.ApproximateReceiveCount) !== times) {
      throw new Error(`order ${number} was received more often than it was handled`);
    }
    if (number === 7 && times === 1) throw new Error("order 7 fails at first");
    if (number === 13) await setTimeout(6500);
    return message;
  },
});
for (const event of ["error", "processing_error", "timeout_error"]) {
  consumer.on(event, (error) => failures.push(error.message));
}
consumer.start();

for (;;) {
  const { Attributes } = await sqs.send(
    new GetQueueAttributesCommand({ QueueUrl, AttributeNames: ["All"] }),
  );
  const left =
    Number(Attributes.ApproximateNumberOfMessages) +
    Number(Attributes.ApproximateNumberOfMessagesNotVisible);
  if (left === 0) break;
  await setTimeout(100);
}
consumer.stop();
console.log(JSON.stringify({ handled: [...handled].sort(([a], [b]) => a - b), failures }));
