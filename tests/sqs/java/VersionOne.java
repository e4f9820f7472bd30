import com.amazonaws.client.builder.AwsClientBuilder.EndpointConfiguration;
import com.amazonaws.services.sqs.AmazonSQS;
import com.amazonaws.services.sqs.AmazonSQSAsyncClientBuilder;
import com.amazonaws.services.sqs.AmazonSQSClientBuilder;
import com.amazonaws.services.sqs.buffered.AmazonSQSBufferedAsyncClient;
import com.amazonaws.services.sqs.buffered.QueueBufferConfig;
import com.amazonaws.services.sqs.model.*;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.Future;

/** The SDK for Java 1 at a queue; the SDK itself compares the digests of bodies and attributes. */
public class VersionOne {
    static final EndpointConfiguration DOOR = new EndpointConfiguration(
            System.getenv("AWS_ENDPOINT_URL_SQS"), System.getenv("AWS_REGION"));

    public static void main(String[] arguments) throws Exception {
        AmazonSQS sqs = AmazonSQSClientBuilder.standard().withEndpointConfiguration(DOOR).build();
        standard(sqs);
        fifo(sqs);
        errors(sqs);
        buffered();
        sqs.shutdown();
    }

    static void standard(AmazonSQS sqs) {
        String url = sqs.createQueue(new CreateQueueRequest("orders")
                .addAttributesEntry("VisibilityTimeout", "45")).getQueueUrl();
        System.out.println("found: " + sqs.getQueueUrl("orders").getQueueUrl().equals(url));
        System.out.println("timeout: " + sqs.getQueueAttributes(url, List.of("All"))
                .getAttributes().get("VisibilityTimeout"));

        sqs.sendMessage(new SendMessageRequest(url, "Grüße <&>\r\n\t\u2028")
                .addMessageAttributesEntry("lang", text("é"))
                .addMessageAttributesEntry("blob", new MessageAttributeValue()
                        .withDataType("Binary").withBinaryValue(ByteBuffer.wrap(new byte[] {-1, 0}))));
        Message message = receive(sqs, url).get(0);
        System.out.println("whole: " + message.getBody().equals("Grüße <&>\r\n\t\u2028")
                + " " + message.getMessageAttributes().get("lang").getStringValue()
                + " " + message.getMessageAttributes().get("blob").getBinaryValue().get(0)
                + " " + message.getAttributes().get("ApproximateReceiveCount"));
        sqs.changeMessageVisibility(url, message.getReceiptHandle(), 0);
        message = receive(sqs, url).get(0);
        System.out.println("again: " + message.getAttributes().get("ApproximateReceiveCount"));
        sqs.deleteMessage(url, message.getReceiptHandle());

        SendMessageBatchResult sent = sqs.sendMessageBatch(url, List.of(
                new SendMessageBatchRequestEntry("a", "one"),
                new SendMessageBatchRequestEntry("b", "two").withDelaySeconds(901)));
        System.out.println("sent: " + sent.getSuccessful().get(0).getId()
                + ", refused: " + sent.getFailed().get(0).getId()
                + " " + sent.getFailed().get(0).getCode());
        message = receive(sqs, url).get(0);
        System.out.println("held: " + sqs.changeMessageVisibilityBatch(url, List.of(
                new ChangeMessageVisibilityBatchRequestEntry("a", message.getReceiptHandle())
                        .withVisibilityTimeout(60))).getSuccessful().size());
        System.out.println("deleted: " + sqs.deleteMessageBatch(url, List.of(
                new DeleteMessageBatchRequestEntry("a", message.getReceiptHandle())))
                .getSuccessful().size());
        System.out.println("left: " + sqs.receiveMessage(url).getMessages().size());

        sqs.setQueueAttributes(url, Map.of("DelaySeconds", "0"));
        sqs.tagQueue(url, Map.of("team", "shop"));
        System.out.println("tags: " + sqs.listQueueTags(url).getTags());
        System.out.println("queues: " + sqs.listQueues("ord").getQueueUrls().equals(List.of(url)));
        sqs.purgeQueue(new PurgeQueueRequest(url));
        sqs.deleteQueue(url);
    }

    static void fifo(AmazonSQS sqs) {
        String url = sqs.createQueue(new CreateQueueRequest("payments.fifo").withAttributes(Map.of(
                "FifoQueue", "true", "ContentBasedDeduplication", "true"))).getQueueUrl();
        for (String body : List.of("ada: 5", "ada: 7", "ada: 5", "ben: 3")) {
            sqs.sendMessage(new SendMessageRequest(url, body)
                    .withMessageGroupId(body.substring(0, 3)));
        }
        List<String> bodies = new ArrayList<>();
        for (Message message : receive(sqs, url)) {
            bodies.add(message.getBody());
            sqs.deleteMessage(url, message.getReceiptHandle());
        }
        System.out.println("in order: " + bodies);
        sqs.deleteQueue(url);
    }

    static void errors(AmazonSQS sqs) {
        try {
            sqs.getQueueUrl("nobody");
        } catch (QueueDoesNotExistException error) {
            System.out.println("missing: " + error.getErrorCode() + " " + error.getStatusCode());
        }
        String url = sqs.createQueue("exists").getQueueUrl();
        try {
            sqs.createQueue(new CreateQueueRequest("exists")
                    .addAttributesEntry("VisibilityTimeout", "1"));
        } catch (QueueNameExistsException error) {
            System.out.println("exists: " + error.getErrorCode());
        }
        try {
            sqs.deleteMessage(url, "no handle");
        } catch (ReceiptHandleIsInvalidException error) {
            System.out.println("handle: " + error.getErrorCode());
        }
        try {
            sqs.sendMessageBatch(url, List.of(new SendMessageBatchRequestEntry("a", "one"),
                    new SendMessageBatchRequestEntry("a", "two")));
        } catch (BatchEntryIdsNotDistinctException error) {
            System.out.println("twice: " + error.getErrorCode());
        }
        sqs.deleteQueue(url);
    }

    static void buffered() throws Exception {
        AmazonSQSBufferedAsyncClient sqs = new AmazonSQSBufferedAsyncClient(
                AmazonSQSAsyncClientBuilder.standard().withEndpointConfiguration(DOOR).build(),
                new QueueBufferConfig().withLongPollWaitTimeoutSeconds(1));
        String url = sqs.createQueue(new CreateQueueRequest("buffered")).getQueueUrl();
        List<Future<SendMessageResult>> sent = new ArrayList<>();
        for (int number = 0; number < 25; number++) {
            sent.add(sqs.sendMessageAsync(new SendMessageRequest(url, "message " + number)));
        }
        for (Future<SendMessageResult> each : sent) {
            each.get();
        }
        Set<String> bodies = new TreeSet<>();
        while (bodies.size() < 25) {
            for (Message message : sqs.receiveMessage(new ReceiveMessageRequest(url)
                    .withMaxNumberOfMessages(10).withWaitTimeSeconds(5)).getMessages()) {
                bodies.add(message.getBody());
                sqs.deleteMessage(new DeleteMessageRequest(url, message.getReceiptHandle()));
            }
        }
        System.out.println("buffered: " + bodies.size());
        sqs.shutdown();
    }

    static List<Message> receive(AmazonSQS sqs, String url) {
        return sqs.receiveMessage(new ReceiveMessageRequest(url).withWaitTimeSeconds(20)
                .withMaxNumberOfMessages(10).withAttributeNames("All")
                .withMessageAttributeNames("All")).getMessages();
    }

    static MessageAttributeValue text(String value) {
        return new MessageAttributeValue().withDataType("String").withStringValue(value);
    }
}
