import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.retry.ExponentialBackoffRetry;

/**
 * Curator's own locks, contending: HOSTS PATH TURNS HOLD FILE..., a thread for each file: with the
 * mutex or, if the second word of the file's name is "read" or "write", with the read-write lock.
 *
 * HOLD is in milliseconds. A file appears before the first acquire of its thread. An interval lies
 * inside the hold, and is written as "granted released token": in nanoseconds of System.nanoTime(),
 * which on Linux is the clock of Python's time.monotonic_ns(), and the transaction that created the
 * node.
 */
public class Contend {
    private final CuratorFramework client;
    private final String path;
    private final long turns;
    private final long hold;

    private Contend(String hosts, String path, long turns, long hold) {
        client = CuratorFrameworkFactory.newClient(hosts, 10_000, 10_000, new ExponentialBackoffRetry(50, 5));
        client.start();
        this.path = path;
        this.turns = turns;
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

    private InterProcessMutex mutex(String[] words) {
        if (words.length > 1 && words[1].equals("read")) {
            return new InterProcessReadWriteLock(client, path).readLock();
        }
        if (words.length > 1 && words[1].equals("write")) {
            return new InterProcessReadWriteLock(client, path).writeLock();
        }
        return new InterProcessMutex(client, path);
    }

    /** The transaction that created the node of the mutex; 0 for the other locks, which may share. */
    private long token(InterProcessMutex mutex) throws Exception {
        if (mutex.getClass() != InterProcessMutex.class) {
            return 0;
        }
        String ours = mutex.getParticipantNodes().iterator().next();
        return client.checkExists().forPath(ours).getCzxid();
    }

    private void contend(Path file) {
        StringBuilder lines = new StringBuilder();
        InterProcessMutex mutex = mutex(file.getFileName().toString().split(" "));
        try {
            Files.createFile(file);
            for (long turn = 0; turn < turns; turn++) {
                mutex.acquire();
                long granted = System.nanoTime();
                long token = token(mutex);
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
