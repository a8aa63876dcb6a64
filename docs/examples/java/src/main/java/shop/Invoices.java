package shop;

import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Takes orders, writes an invoice for each, and finally checks that no order is without one.
 *
 * <pre>
 * mvn -q compile dependency:copy-dependencies
 * kraft run -- java -cp 'target/classes:target/dependency/*' shop.Invoices [ORDERS [PER_SECOND]]
 * </pre>
 *
 * Exit code 0: every order has its invoice. 1: some have none.
 */
public final class Invoices {
  private static final String BOOTSTRAP = System.getenv("KAFKA_BOOTSTRAP_SERVERS");
  private static final Instant DEADLINE = Instant.now().plusSeconds(120);
  private static final Duration POLL = Duration.ofMillis(500);

  public static void main(String[] arguments) throws Exception {
    int count = arguments.length > 0 ? Integer.parseInt(arguments[0]) : 200;
    int perSecond = arguments.length > 1 ? Integer.parseInt(arguments[1]) : 100;
    createTopics();
    Thread taking = new Thread(() -> takeOrders(count, perSecond));
    taking.start();
    writeInvoices(count);
    taking.join();
    int found = countInvoices(count);
    System.out.printf("%d orders, %d with an invoice%n", count, found);
    System.exit(found == count ? 0 : 1);
  }

  private static void createTopics() throws InterruptedException {
    try (Admin admin = Admin.create(Map.of("bootstrap.servers", BOOTSTRAP))) {
      var orders = new NewTopic("orders", Optional.of(3), Optional.empty());
      var invoices = new NewTopic("invoices", Optional.of(1), Optional.empty());
      admin.createTopics(List.of(orders, invoices)).all().get();
    } catch (ExecutionException problem) {
      System.out.println("topics: " + problem.getCause().getMessage()); // they may exist already
    }
  }

  /** Sends the orders. The client retries sends that a leader change interrupted. */
  private static void takeOrders(int count, int perSecond) {
    try (var producer = producer()) {
      for (int number = 0; number < count; number++) {
        producer.send(new ProducerRecord<>("orders", "" + number, "order " + number));
        Thread.sleep(1000 / perSecond);
      }
    } catch (InterruptedException end) {
      Thread.currentThread().interrupt();
    }
  }

  /** Writes an invoice for each order. An order counts as done when its invoice is acknowledged: at least once. */
  private static void writeInvoices(int count) throws Exception {
    Set<String> done = new HashSet<>();
    try (var orders = consumer("billing"); var producer = producer()) {
      orders.subscribe(List.of("orders"));
      while (done.size() < count && Instant.now().isBefore(DEADLINE)) {
        List<Future<?>> sent = new ArrayList<>();
        Set<String> batch = new HashSet<>();
        for (ConsumerRecord<String, String> order : orders.poll(POLL)) {
          sent.add(producer.send(new ProducerRecord<>("invoices", order.key(), "invoice for " + order.value())));
          batch.add(order.key());
        }
        for (Future<?> each : sent) {
          each.get();
        }
        done.addAll(batch);
        try {
          orders.commitSync();
        } catch (KafkaException problem) {
          System.out.println("not committed: " + problem.getMessage()); // these orders may be delivered again
        }
      }
    }
  }

  /** Returns how many of the orders have an invoice. */
  private static int countInvoices(int count) {
    Set<String> found = new HashSet<>();
    try (var invoices = consumer("audit-" + ProcessHandle.current().pid())) {
      invoices.subscribe(List.of("invoices"));
      while (found.size() < count && Instant.now().isBefore(DEADLINE)) {
        invoices.poll(POLL).forEach(invoice -> found.add(invoice.key()));
      }
    }
    return found.size();
  }

  private static KafkaProducer<String, String> producer() {
    Map<String, Object> settings = Map.of("bootstrap.servers", BOOTSTRAP, "enable.idempotence", true);
    return new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
  }

  private static KafkaConsumer<String, String> consumer(String group) {
    Map<String, Object> settings =
        Map.of(
            "bootstrap.servers", BOOTSTRAP,
            "group.id", group,
            "auto.offset.reset", "earliest",
            "enable.auto.commit", false);
    return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
  }

  private Invoices() {}
}
