import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.springframework.amqp.core.*;
import org.springframework.amqp.rabbit.connection.CachingConnectionFactory;
import org.springframework.amqp.rabbit.connection.CorrelationData;
import org.springframework.amqp.rabbit.core.RabbitAdmin;
import org.springframework.amqp.rabbit.core.RabbitTemplate;
import org.springframework.amqp.rabbit.listener.SimpleMessageListenerContainer;

/** Spring AMQP: a topic exchange with delayed=true, mandatory and correlated confirms. Arguments: URL, exchange. */
public class Main {
    public static void main(String[] args) throws Exception {
        var connections = new CachingConnectionFactory(java.net.URI.create(args[0]));
        connections.setPublisherConfirmType(CachingConnectionFactory.ConfirmType.CORRELATED);
        connections.setPublisherReturns(true);
        var exchange = new TopicExchange(args[1]);
        exchange.setDelayed(true);
        var admin = new RabbitAdmin(connections);
        admin.declareExchange(exchange);
        var queue = admin.declareQueue();
        admin.declareBinding(BindingBuilder.bind(queue).to(exchange).with("a.*"));
        Map<String, Long> came = new ConcurrentHashMap<>();
        long sent = System.currentTimeMillis();
        var listener = new SimpleMessageListenerContainer(connections);
        listener.setQueueNames(queue.getName());
        listener.setMessageListener(m -> {
            System.out.print(new String(m.getBody()) + " received delay " + m.getMessageProperties().getHeader("x-delay") + "; ");
            came.put(new String(m.getBody()), System.currentTimeMillis() - sent);
        });
        listener.start();
        var template = new RabbitTemplate(connections);
        template.setMandatory(true);
        int[] returned = {0};
        template.setReturnsCallback(r -> returned[0]++);
        int acks = 0;
        for (String which : new String[] {"later", "now"}) {
            var properties = new MessageProperties();
            if (which.equals("later")) properties.setHeader("x-delay", 1500);
            var about = new CorrelationData(which);
            template.send(args[1], "a.b", new Message(which.getBytes(), properties), about);
            if (about.getFuture().get().isAck()) acks++;
        }
        while (came.size() < 2) Thread.sleep(20);
        System.out.println(came + ", " + acks + " acks, " + returned[0] + " returned");
        System.exit(came.get("later") < 1500 || acks != 2 || returned[0] != 0 ? 1 : 0);
    }
}
