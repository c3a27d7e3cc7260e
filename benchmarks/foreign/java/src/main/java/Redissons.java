import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * Redisson with its default settings: a lease of 30 s that the watchdog renews, reentrant. "redisson"
 * is RLock, whose waiters have no order; "redisson-fair" is RFairLock, which serves waiters first
 * come, first served, as leaselock does.
 */
final class Redissons implements Contender.Library {
    private final RedissonClient client;
    private final boolean fair;

    Redissons(String url, String name) {
        Config config = new Config();
        config.useSingleServer().setAddress(url);
        client = Redisson.create(config);
        fair = name.equals("redisson-fair");
    }

    @Override
    public Contender.Lock lock(String name) {
        RLock lock = fair ? client.getFairLock(name) : client.getLock(name);
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
