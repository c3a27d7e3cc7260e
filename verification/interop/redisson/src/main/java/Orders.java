import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;

import org.redisson.Redisson;
import org.redisson.api.RFencedLock;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * Takes orders on standard input, one a line, and carries them out by Redisson.
 *
 * <p>An order is {@code ID OWNER VERB NAME ARGUMENT...}; its answer {@code ID RESULT}. Each OWNER
 * is a thread of its own, since Redisson's owners are threads: the orders of one come one after
 * another, those of different owners at once. Times are nanoseconds of System.nanoTime(), which on
 * Linux is CLOCK_MONOTONIC; durations are milliseconds.
 *
 * <p>Started with the watchdog's timeout and the addresses: of one server, or of a cluster's nodes.
 */
public final class Orders {
    private static final PrintStream OUT =
            new PrintStream(System.out, true, StandardCharsets.UTF_8);

    private final RedissonClient client;
    private final Map<String, ExecutorService> owners = new TreeMap<>();

    private Orders(RedissonClient client) {
        this.client = client;
    }

    public static void main(String[] arguments) throws IOException {
        String[] addresses = Arrays.copyOfRange(arguments, 1, arguments.length);
        Orders orders = new Orders(connect(Long.parseLong(arguments[0]), addresses));
        OUT.println("ready");
        BufferedReader in =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            orders.take(line.split(" "));
        }
        // The controlling process has ended: end at once, as a process that dies.
        Runtime.getRuntime().halt(0);
    }

    private static RedissonClient connect(long watchdog, String[] addresses) {
        Config config = new Config();
        config.setLockWatchdogTimeout(watchdog);
        config.setThreads(4);
        config.setNettyThreads(4);
        if (addresses.length > 1) {
            config.useClusterServers()
                    .addNodeAddress(addresses)
                    .setScanInterval(500)
                    .setMasterConnectionMinimumIdleSize(1)
                    .setSlaveConnectionMinimumIdleSize(1);
        } else {
            config.useSingleServer()
                    .setAddress(addresses[0])
                    .setConnectionMinimumIdleSize(2)
                    .setSubscriptionConnectionMinimumIdleSize(1);
        }
        return Redisson.create(config);
    }

    private void take(String[] order) {
        owners.computeIfAbsent(order[1], this::thread).execute(() -> answer(order));
    }

    private ExecutorService thread(String owner) {
        return Executors.newSingleThreadExecutor(task -> new Thread(task, owner));
    }

    private void answer(String[] order) {
        String result;
        try {
            result = obey(order[2], order[3], Arrays.copyOfRange(order, 4, order.length));
        } catch (Exception error) {
            result = "error " + error.getClass().getSimpleName();
        }
        OUT.println(order[0] + " " + result);
    }

    private String obey(String verb, String name, String[] rest) throws Exception {
        RLock lock = client.getLock(name);
        // "read-trylock" and the like are for the sides of a read/write lock.
        if (verb.startsWith("read-")) {
            lock = client.getReadWriteLock(name).readLock();
            verb = verb.substring("read-".length());
        } else if (verb.startsWith("write-")) {
            lock = client.getReadWriteLock(name).writeLock();
            verb = verb.substring("write-".length());
        }
        switch (verb) {
            case "lock":
                // A lease of -1 is Redisson's word for "renewed by the watchdog".
                lock.lock(rest.length > 0 ? Long.parseLong(rest[0]) : -1, TimeUnit.MILLISECONDS);
                return now();
            case "trylock":
                boolean got = lock.tryLock(Long.parseLong(rest[0]), -1, TimeUnit.MILLISECONDS);
                return got + " " + now();
            case "unlock":
                // Before, not after: a waiter may be granted the lock before this thread continues.
                String begun = now();
                lock.unlock();
                return begun;
            case "force":
                String forced = now();
                return lock.forceUnlock() + " " + forced;
            case "count":
                return lock.getHoldCount() + " " + lock.isLocked();
            case "token":
                return Long.toString(client.getFencedLock(name).lockAndGetToken());
            case "loop":
                return loop(name, Long.parseLong(rest[0]), Long.parseLong(rest[1]), rest[2]);
            default:
                throw new IllegalArgumentException(verb);
        }
    }

    /** Acquire and release that often; each hold is written as "granted released token". */
    private String loop(String name, long turns, long hold, String file) throws Exception {
        RFencedLock lock = client.getFencedLock(name);
        try (PrintStream holds = new PrintStream(file, StandardCharsets.UTF_8)) {
            for (long turn = 0; turn < turns; turn++) {
                long token = lock.lockAndGetToken();
                long granted = System.nanoTime();
                Thread.sleep(hold);
                long released = System.nanoTime();
                lock.unlock();
                holds.println(granted + " " + released + " " + token);
            }
        }
        return Long.toString(turns);
    }

    private static String now() {
        return Long.toString(System.nanoTime());
    }
}
