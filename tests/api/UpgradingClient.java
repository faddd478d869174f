// Posts files with Java's own HTTP client and its defaults: URL, content type and file, as often as given.
// Prints the status of each answer.

import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.file.Path;

public class UpgradingClient {
    public static void main(String[] given) throws Exception {
        for (int at = 0; at < given.length; at += 3) {
            // A new client each time: one that knows a server no longer offers HTTP/2 to it.
            HttpRequest request = HttpRequest.newBuilder(URI.create(given[at]))
                .header("Content-Type", given[at + 1])
                .POST(HttpRequest.BodyPublishers.ofFile(Path.of(given[at + 2])))
                .build();
            HttpResponse<String> answer = HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString());
            System.out.println(answer.statusCode());
        }
    }
}
