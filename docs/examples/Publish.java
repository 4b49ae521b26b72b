import com.rabbitmq.client.*;
import java.util.Map;

public class Publish {
    public static void main(String[] args) throws Exception {
        ConnectionFactory factory = new ConnectionFactory();
        factory.setUri(System.getenv("AMQP_URL"));
        try (Connection connection = factory.newConnection(); Channel channel = connection.createChannel()) {
            channel.confirmSelect();
            AMQP.BasicProperties properties = new AMQP.BasicProperties.Builder()
                .deliveryMode(2).headers(Map.of("x-delay", 5000)).build();
            channel.basicPublish("postdate", "order.reminder", properties, "still in the cart".getBytes("UTF-8"));
            channel.waitForConfirmsOrDie(10_000);
        }
    }
}
