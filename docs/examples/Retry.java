import java.net.URI;
import java.net.http.*;
import org.springframework.amqp.rabbit.annotation.*;
import org.springframework.amqp.rabbit.config.SimpleRabbitListenerContainerFactory;
import org.springframework.amqp.rabbit.connection.*;
import org.springframework.amqp.rabbit.listener.ConditionalRejectingErrorHandler;
import org.springframework.context.annotation.*;

@Configuration
@EnableRabbit
public class Retry {
    private final HttpClient client = HttpClient.newHttpClient();

    @Bean
    ConnectionFactory connectionFactory() {
        return new CachingConnectionFactory(URI.create(System.getenv("AMQP_URL")));
    }

    @Bean
    SimpleRabbitListenerContainerFactory rabbitListenerContainerFactory(ConnectionFactory connectionFactory) {
        var errors = new ConditionalRejectingErrorHandler();
        errors.setDiscardFatalsWithXDeath(false);
        var factory = new SimpleRabbitListenerContainerFactory();
        factory.setConnectionFactory(connectionFactory);
        factory.setDefaultRequeueRejected(false);
        factory.setErrorHandler(errors);
        return factory;
    }

    @RabbitListener(queues = "shop.webhooks")
    void call(String url) throws Exception {
        var answer = client.send(HttpRequest.newBuilder(URI.create(url)).build(), HttpResponse.BodyHandlers.discarding());
        if (answer.statusCode() >= 300)
            throw new Exception(url + " answers " + answer.statusCode());
    }

    public static void main(String[] args) {
        new AnnotationConfigApplicationContext(Retry.class);
    }
}
