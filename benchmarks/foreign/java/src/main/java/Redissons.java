import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RReadWriteLock;
import org.redisson.api.RSemaphore;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * Redisson with its default settings: a lease of 30 s that the watchdog renews, reentrant. "redisson"
 * is RLock, whose waiters have no order; "redisson-fair" is RFairLock, which serves waiters first
 * come, first served, as leaselock does. The semaphore of "redisson-expirable" is
 * RPermitExpirableSemaphore with a lease of 30 s, which nothing renews; the other is RSemaphore.
 */
final class Redissons implements Contender.Library {
    private final RedissonClient client;
    private final boolean fair;
    private final boolean expirable;

    Redissons(String url, String name) {
        Config config = new Config();
        config.useSingleServer().setAddress(url);
        client = Redisson.create(config);
        fair = name.equals("redisson-fair");
        expirable = name.equals("redisson-expirable");
    }

    @Override
    public Contender.Lock lock(String name) {
        return adapted(fair ? client.getFairLock(name) : client.getLock(name));
    }

    @Override
    public Contender.Lock side(String name, String side) {
        RReadWriteLock sides = client.getReadWriteLock(name);
        return adapted(side.equals("read") ? sides.readLock() : sides.writeLock());
    }

    @Override
    public Contender.Lock semaphore(String name, int permits) {
        return expirable ? leases(name, permits) : counter(name, permits);
    }

    private Contender.Lock counter(String name, int permits) {
        RSemaphore semaphore = client.getSemaphore(name);
        semaphore.trySetPermits(permits);
        return new Contender.Lock() {
            @Override
            public void acquire() throws Exception {
                semaphore.acquire();
            }

            @Override
            public void release() {
                semaphore.release();
            }
        };
    }

    private Contender.Lock leases(String name, int permits) {
        RPermitExpirableSemaphore semaphore = client.getPermitExpirableSemaphore(name);
        semaphore.trySetPermits(permits);
        return new Contender.Lock() {
            private String permit;

            @Override
            public void acquire() throws Exception {
                permit = semaphore.acquire(30, TimeUnit.SECONDS);
            }

            @Override
            public void release() {
                semaphore.release(permit);
            }
        };
    }

    private static Contender.Lock adapted(RLock lock) {
        return new Contender.Lock() {
            @Override
            public void acquire() {
                lock.lock();
            }

            @Override
            public void release() {
                lock.unlock();
            }
        };
    }
}
