import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import software.amazon.awssdk.core.SdkBytes;
import software.amazon.awssdk.services.sqs.SqsAsyncClient;
import software.amazon.awssdk.services.sqs.SqsClient;
import software.amazon.awssdk.services.sqs.batchmanager.SqsAsyncBatchManager;
import software.amazon.awssdk.services.sqs.model.*;

/** The SDK for Java 2 at a queue; the SDK itself compares the digests of bodies and attributes. */
public class VersionTwo {
    public static void main(String[] arguments) {
        try (SqsClient sqs = SqsClient.create()) {
            standard(sqs);
            fifo(sqs);
            errors(sqs);
        }
        try (SqsAsyncClient sqs = SqsAsyncClient.create()) {
            batched(sqs);
        }
    }

    static void standard(SqsClient sqs) {
        String url = sqs.createQueue(it -> it.queueName("orders")
                .attributes(Map.of(QueueAttributeName.VISIBILITY_TIMEOUT, "45"))).queueUrl();
        System.out.println("found: " + sqs.getQueueUrl(it -> it.queueName("orders"))
                .queueUrl().equals(url));
        System.out.println("timeout: " + sqs.getQueueAttributes(it -> it.queueUrl(url)
                .attributeNames(QueueAttributeName.ALL))
                .attributes().get(QueueAttributeName.VISIBILITY_TIMEOUT));

        sqs.sendMessage(it -> it.queueUrl(url).messageBody("Grüße <&>\r\n\t\u2028")
                .messageAttributes(Map.of("lang", text("é"), "blob", MessageAttributeValue.builder()
                        .dataType("Binary").binaryValue(SdkBytes.fromByteArray(new byte[] {-1, 0}))
                        .build())));
        Message first = receive(sqs, url).get(0);
        System.out.println("whole: " + first.body().equals("Grüße <&>\r\n\t\u2028")
                + " " + first.messageAttributes().get("lang").stringValue()
                + " " + first.messageAttributes().get("blob").binaryValue().asByteArray()[0]
                + " " + deliveries(first));
        sqs.changeMessageVisibility(it -> it.queueUrl(url)
                .receiptHandle(first.receiptHandle()).visibilityTimeout(0));
        Message second = receive(sqs, url).get(0);
        System.out.println("again: " + deliveries(second));
        sqs.deleteMessage(it -> it.queueUrl(url).receiptHandle(second.receiptHandle()));

        SendMessageBatchResponse sent = sqs.sendMessageBatch(it -> it.queueUrl(url).entries(
                one -> one.id("a").messageBody("one"),
                two -> two.id("b").messageBody("two").delaySeconds(901)));
        System.out.println("sent: " + sent.successful().get(0).id()
                + ", refused: " + sent.failed().get(0).id() + " " + sent.failed().get(0).code());
        Message third = receive(sqs, url).get(0);
        System.out.println("held: " + sqs.changeMessageVisibilityBatch(it -> it.queueUrl(url)
                .entries(entry -> entry.id("a").receiptHandle(third.receiptHandle())
                        .visibilityTimeout(60))).successful().size());
        System.out.println("deleted: " + sqs.deleteMessageBatch(it -> it.queueUrl(url)
                .entries(entry -> entry.id("a").receiptHandle(third.receiptHandle())))
                .successful().size());
        System.out.println("left: " + sqs.receiveMessage(it -> it.queueUrl(url)).messages().size());

        sqs.setQueueAttributes(it -> it.queueUrl(url)
                .attributes(Map.of(QueueAttributeName.DELAY_SECONDS, "0")));
        sqs.tagQueue(it -> it.queueUrl(url).tags(Map.of("team", "shop")));
        System.out.println("tags: " + sqs.listQueueTags(it -> it.queueUrl(url)).tags());
        System.out.println("queues: " + sqs.listQueuesPaginator(it -> it.queueNamePrefix("ord"))
                .queueUrls().stream().toList().equals(List.of(url)));
        sqs.purgeQueue(it -> it.queueUrl(url));
        sqs.deleteQueue(it -> it.queueUrl(url));
    }

    static void fifo(SqsClient sqs) {
        String url = sqs.createQueue(it -> it.queueName("payments.fifo").attributes(Map.of(
                QueueAttributeName.FIFO_QUEUE, "true",
                QueueAttributeName.CONTENT_BASED_DEDUPLICATION, "true"))).queueUrl();
        for (String body : List.of("ada: 5", "ada: 7", "ada: 5", "ben: 3")) {
            sqs.sendMessage(it -> it.queueUrl(url).messageBody(body)
                    .messageGroupId(body.substring(0, 3)));
        }
        List<String> bodies = new ArrayList<>();
        for (Message message : receive(sqs, url)) {
            bodies.add(message.body());
            sqs.deleteMessage(it -> it.queueUrl(url).receiptHandle(message.receiptHandle()));
        }
        System.out.println("in order: " + bodies);
        sqs.deleteQueue(it -> it.queueUrl(url));
    }

    static void errors(SqsClient sqs) {
        try {
            sqs.getQueueUrl(it -> it.queueName("nobody"));
        } catch (QueueDoesNotExistException error) {
            System.out.println("missing: " + error.awsErrorDetails().errorCode()
                    + " " + error.statusCode());
        }
        String url = sqs.createQueue(it -> it.queueName("exists")).queueUrl();
        try {
            sqs.createQueue(it -> it.queueName("exists")
                    .attributes(Map.of(QueueAttributeName.VISIBILITY_TIMEOUT, "1")));
        } catch (QueueNameExistsException error) {
            System.out.println("exists: " + error.awsErrorDetails().errorCode());
        }
        try {
            sqs.deleteMessage(it -> it.queueUrl(url).receiptHandle("no handle"));
        } catch (ReceiptHandleIsInvalidException error) {
            System.out.println("handle: " + error.awsErrorDetails().errorCode());
        }
        try {
            sqs.sendMessageBatch(it -> it.queueUrl(url).entries(
                    one -> one.id("a").messageBody("one"), two -> two.id("a").messageBody("two")));
        } catch (BatchEntryIdsNotDistinctException error) {
            System.out.println("twice: " + error.awsErrorDetails().errorCode());
        }
        sqs.deleteQueue(it -> it.queueUrl(url));
    }

    static void batched(SqsAsyncClient sqs) {
        String url = sqs.createQueue(it -> it.queueName("buffered")).join().queueUrl();
        Set<String> bodies = new TreeSet<>();
        try (SqsAsyncBatchManager manager = sqs.batchManager()) {
            List<CompletableFuture<SendMessageResponse>> sent = new ArrayList<>();
            for (int number = 0; number < 25; number++) {
                String body = "message " + number;
                sent.add(manager.sendMessage(it -> it.queueUrl(url).messageBody(body)));
            }
            sent.forEach(CompletableFuture::join);
            List<CompletableFuture<DeleteMessageResponse>> deleted = new ArrayList<>();
            while (bodies.size() < 25) {
                for (Message message : manager.receiveMessage(it -> it.queueUrl(url)
                        .maxNumberOfMessages(10)).join().messages()) {
                    bodies.add(message.body());
                    deleted.add(manager.deleteMessage(it -> it.queueUrl(url)
                            .receiptHandle(message.receiptHandle())));
                }
            }
            deleted.forEach(CompletableFuture::join);
        }
        System.out.println("buffered: " + bodies.size());
    }

    static List<Message> receive(SqsClient sqs, String url) {
        return sqs.receiveMessage(it -> it.queueUrl(url).waitTimeSeconds(20)
                .maxNumberOfMessages(10).messageAttributeNames("All")
                .messageSystemAttributeNames(MessageSystemAttributeName.ALL)).messages();
    }

    static String deliveries(Message message) {
        return message.attributes()
                .get(MessageSystemAttributeName.APPROXIMATE_RECEIVE_COUNT);
    }

    static MessageAttributeValue text(String value) {
        return MessageAttributeValue.builder().dataType("String").stringValue(value).build();
    }
}
