using MassTransit;
using Microsoft.Extensions.DependencyInjection;
using Microsoft.Extensions.Hosting;

var builder = Host.CreateApplicationBuilder(args);
builder.Services.AddMassTransit(bus =>
{
    bus.AddConsumer<Caller>();
    bus.UsingRabbitMq((context, rabbit) =>
    {
        rabbit.Host(new Uri(Environment.GetEnvironmentVariable("AMQP_URL")!));
        rabbit.ReceiveEndpoint("shop.webhooks", endpoint =>
        {
            endpoint.SetQuorumQueue();
            endpoint.SetQueueArgument("x-delivery-limit", 0);
            endpoint.RethrowFaultedMessages();
            endpoint.ThrowOnSkippedMessages();
            endpoint.ConfigureConsumer<Caller>(context);
        });
    });
});
builder.Build().Run();

public record Call(string Url);

public class Caller : IConsumer<Call>
{
    private static readonly HttpClient client = new();

    public async Task Consume(ConsumeContext<Call> context)
    {
        (await client.GetAsync(context.Message.Url)).EnsureSuccessStatusCode();
    }
}
