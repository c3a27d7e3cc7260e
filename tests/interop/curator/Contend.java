import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.ExponentialBackoffRetry;

/**
 * Curator's own mutex, contending: HOSTS PATH UNTIL HOLD FILE..., a thread for each file.
 *
 * UNTIL is in nanoseconds of System.nanoTime(), which on Linux is the clock of Python's
 * time.monotonic_ns(); HOLD in milliseconds. Law: an interval lies inside the hold, and is written
 * as "granted released token", where the token is the transaction that created the node.
 */
public class Contend {
    private final CuratorFramework client;
    private final String path;
    private final long until;
    private final long hold;

    private Contend(String hosts, String path, long until, long hold) {
        client = CuratorFrameworkFactory.newClient(hosts, 10_000, 10_000, new ExponentialBackoffRetry(50, 5));
        client.start();
        this.path = path;
        this.until = until;
        this.hold = hold;
    }

    public static void main(String[] words) throws Exception {
        Contend contest = new Contend(words[0], words[1], Long.parseLong(words[2]), Long.parseLong(words[3]));
        List<Thread> threads = new ArrayList<>();
        for (int i = 4; i < words.length; i++) {
            Path file = Path.of(words[i]);
            Thread thread = new Thread(() -> contest.contend(file));
            thread.start();
            threads.add(thread);
        }
        for (Thread thread : threads) {
            thread.join();
        }
        contest.client.close();
        System.exit(0);
    }

    private void contend(Path file) {
        StringBuilder lines = new StringBuilder();
        InterProcessMutex mutex = new InterProcessMutex(client, path);
        try {
            while (System.nanoTime() < until) {
                mutex.acquire();
                long granted = System.nanoTime();
                String ours = mutex.getParticipantNodes().iterator().next();
                long token = client.checkExists().forPath(ours).getCzxid();
                Thread.sleep(hold);
                lines.append(granted).append(' ').append(System.nanoTime()).append(' ').append(token).append('\n');
                mutex.release();
            }
            Files.writeString(file, lines);
        } catch (Exception error) {
            error.printStackTrace();
            System.exit(1);
        }
    }
}
