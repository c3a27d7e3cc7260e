import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.List;
import java.util.StringJoiner;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/**
 * A process in Java: arguments NAME FOLDER MODE, then commands on its standard input, each answered by
 * one line of JSON, as in benchmarks/workers/contender.py.
 *
 * <p>Times are of System.nanoTime(), which on Linux is the clock of Python's time.monotonic_ns().
 */
public class Contender {
    /** A lock, used by one thread. */
    interface Lock {
        void acquire() throws Exception;

        void release() throws Exception;
    }

    /** A library with one client, which creates locks. */
    interface Library {
        Lock lock(String name) throws Exception;

        /** A side of a read/write lock: "read" or "write". */
        Lock side(String name, String side) throws Exception;

        /** A semaphore, of which each acquire takes one permit. */
        Lock semaphore(String name, int permits) throws Exception;
    }

    /** How many operations the virtual machine needs to reach its full speed. */
    private static final int WARM_UP = 3000;
    private static final long WARM_UP_NANOS = 1_500_000_000L;

    private final Library library;
    private final String mode;
    private final Lock lock;
    private final FileChannel counter;

    private Contender(String name, Path folder, String mode) throws Exception {
        library = name.startsWith("curator") ? new Curators(read(folder, "hosts")) : new Redissons(read(folder, "url"), name);
        this.mode = mode;
        lock = open(name);
        counter = FileChannel.open(folder.resolve("counter"),
                StandardOpenOption.CREATE, StandardOpenOption.READ, StandardOpenOption.WRITE);
    }

    private Lock open(String name) throws Exception {
        return switch (mode) {
            case "" -> library.lock(name);
            case "read", "write" -> library.side(name, mode);
            default -> library.semaphore(name, Integer.parseInt(mode));
        };
    }

    private static String read(Path folder, String file) throws IOException {
        return Files.readString(folder.resolve(file)).strip();
    }

    public static void main(String[] words) throws Exception {
        Contender contender = new Contender(words[0], Path.of(words[1]), words[2]);
        contender.warmUp(words[0] + " " + ProcessHandle.current().pid());
        report("true");
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            contender.obey(line.split(" "));
        }
        System.exit(0);
    }

    private void warmUp(String name) throws Exception {
        Lock own = open(name);
        long until = System.nanoTime() + WARM_UP_NANOS;
        for (int i = 0; i < WARM_UP && System.nanoTime() < until; i++) {
            own.acquire();
            own.release();
        }
    }

    private static void report(String json) {
        System.out.println(json);
        System.out.flush();
    }

    private static long cpu() {
        return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
    }

    private void obey(String[] words) throws Exception {
        switch (words[0]) {
            case "acquire" -> { lock.acquire(); report("true"); }
            case "release" -> { lock.release(); report("true"); }
            case "pairs" -> pairs(Integer.parseInt(words[1]));
            case "contend" -> contend(Double.parseDouble(words[1]), Double.parseDouble(words[2]));
            case "each" -> each(Integer.parseInt(words[1]), Double.parseDouble(words[2]));
            default -> throw new IllegalArgumentException(words[0]);
        }
    }

    private void pairs(int count) throws Exception {
        long began = System.nanoTime();
        long cpu = cpu();
        for (int i = 0; i < count; i++) {
            lock.acquire();
            lock.release();
        }
        double wall = (System.nanoTime() - began) / 1e9 / count;
        report("{\"wall\": " + wall + ", \"cpu\": " + (cpu() - cpu) / 1e9 / count + "}");
    }

    private void contend(double hold, double seconds) throws Exception {
        StringJoiner holds = new StringJoiner(", ");
        long cpu = cpu();
        long until = System.nanoTime() + Math.round(seconds * 1e9);
        for (long requested = System.nanoTime(); requested < until; requested = System.nanoTime()) {
            lock.acquire();
            long granted = System.nanoTime();
            countUp();
            if (hold > 0) {
                Thread.sleep(Math.round(hold * 1e3));
            }
            long released = System.nanoTime();
            lock.release();
            holds.add("[" + requested + ", " + granted + ", " + released + "]");
        }
        report("{\"holds\": [" + holds + "], \"cpu\": " + (cpu() - cpu) / 1e9 + "}");
    }

    /** Increment the counter non-atomically: concurrent holders would lose updates. */
    private void countUp() throws IOException {
        ByteBuffer number = ByteBuffer.allocate(8).order(ByteOrder.LITTLE_ENDIAN);
        counter.read(number, 0);
        long next = number.getLong(0) + 1;
        counter.write(ByteBuffer.allocate(8).order(ByteOrder.LITTLE_ENDIAN).putLong(0, next), 0);
    }

    private void each(int workers, double seconds) throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(workers);
        count(threads, workers, seconds / 2);
        long cpu = cpu();
        long began = System.nanoTime();
        long pairs = count(threads, workers, seconds);
        double wall = (System.nanoTime() - began) / 1e9;
        report("{\"rate\": " + pairs / wall + ", \"cpu\": " + (cpu() - cpu) / 1e9 / pairs + "}");
        threads.shutdown();
    }

    private long count(ExecutorService threads, int workers, double seconds) throws Exception {
        long until = System.nanoTime() + Math.round(seconds * 1e9);
        List<Future<Long>> counts = new ArrayList<>();
        for (int i = 0; i < workers; i++) {
            Lock own = library.lock("each " + i);
            Callable<Long> work = () -> pairsUntil(own, until);
            counts.add(threads.submit(work));
        }
        long sum = 0;
        for (Future<Long> one : counts) {
            sum += one.get();
        }
        return sum;
    }

    private static long pairsUntil(Lock lock, long until) throws Exception {
        long done = 0;
        while (System.nanoTime() < until) {
            lock.acquire();
            lock.release();
            done++;
        }
        return done;
    }
}
