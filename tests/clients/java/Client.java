// The HTTP client of the JDK with its defaults, which offer HTTP/2 by Upgrade: h2c. The server in
// the first argument answers in HTTP/1.1. Prints one line for each thing that it saw.
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

public class Client {
  private static final HttpClient CLIENT = HttpClient.newHttpClient();

  private static HttpRequest.Builder to(String address, String path) {
    return HttpRequest.newBuilder(URI.create(address + path));
  }

  private static HttpRequest completion(String address, int tokens, boolean stream) {
    String body =
        "{\"prompt\": \"Once\", \"temperature\": 0, \"max_tokens\": " + tokens
            + ", \"ignore_eos\": true, \"stream\": " + stream + "}";
    return to(address, "/v1/completions")
        .header("Content-Type", "application/json")
        .POST(BodyPublishers.ofString(body))
        .build();
  }

  // The text of an answer or of an event of it, as JSON has it; none if it has none.
  private static String text(String json) {
    Matcher found = Pattern.compile("\"text\":\"((?:[^\"\\\\]|\\\\.)*)\"").matcher(json);
    return found.find() ? found.group(1) : "";
  }

  private static void say(String what, HttpResponse<?> response) {
    System.out.println(what + " " + response.statusCode() + " " + response.version());
  }

  public static void main(String[] arguments) throws Exception {
    String address = arguments[0];
    say("health", CLIENT.send(to(address, "/health").build(), BodyHandlers.ofString()));

    HttpResponse<String> whole =
        CLIENT.send(completion(address, 20, false), BodyHandlers.ofString());
    say("whole", whole);
    System.out.println("usage " + whole.body().contains("\"completion_tokens\":20"));

    HttpResponse<java.util.stream.Stream<String>> stream =
        CLIENT.send(completion(address, 200, true), BodyHandlers.ofLines());
    say("stream", stream);
    List<String> events =
        stream.body().filter(line -> line.startsWith("data: ")).collect(Collectors.toList());
    String streamed = events.stream().map(Client::text).collect(Collectors.joining());
    HttpResponse<String> same =
        CLIENT.send(completion(address, 200, false), BodyHandlers.ofString());
    System.out.println(
        "events " + (events.size() > 2 && streamed.equals(text(same.body()))) + " "
            + events.get(events.size() - 1));

    // A body of more than one write, then eight requests at once.
    String words = "{\"prompt\": \"" + "word ".repeat(20_000) + "\"}";
    HttpRequest large =
        to(address, "/tokenize")
            .header("Content-Type", "application/json")
            .POST(BodyPublishers.ofString(words))
            .build();
    say("large", CLIENT.send(large, BodyHandlers.ofString()));
    List<CompletableFuture<HttpResponse<String>>> beside =
        IntStream.range(0, 8)
            .mapToObj(i -> CLIENT.sendAsync(completion(address, 50, false), BodyHandlers.ofString()))
            .collect(Collectors.toList());
    long distinct =
        beside.stream()
            .map(CompletableFuture::join)
            .map(response -> response.statusCode() + response.body().replaceAll(
                "\"(id|created)\":[^,]*,|\"usage\":.*", "")) // drafts depend on the load
            .distinct()
            .count();
    System.out.println("distinct " + distinct);

    HttpResponse<String> wrong =
        CLIENT.send(to(address, "/v1/completions").header("Content-Type", "application/json")
            .POST(BodyPublishers.ofString("{")).build(), BodyHandlers.ofString());
    say("wrong", wrong);
    System.out.println("error " + wrong.body().contains("\"message\""));
  }
}
