import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.retry.ExponentialBackoffRetry;

/** Curator's locks on one session, with the documented retry policy. */
final class Curators implements Contender.Library {
    private final CuratorFramework client;

    Curators(String hosts) {
        client = CuratorFrameworkFactory.newClient(hosts, new ExponentialBackoffRetry(1000, 3));
        client.start();
    }

    @Override
    public Contender.Lock lock(String name) {
        return adapted(new InterProcessMutex(client, path(name)));
    }

    @Override
    public Contender.Lock side(String name, String side) {
        InterProcessReadWriteLock sides = new InterProcessReadWriteLock(client, path(name));
        return adapted(side.equals("read") ? sides.readLock() : sides.writeLock());
    }

    @Override
    public Contender.Lock semaphore(String name, int permits) {
        InterProcessSemaphoreV2 semaphore = new InterProcessSemaphoreV2(client, path(name), permits);
        return new Contender.Lock() {
            private Lease lease;

            @Override
            public void acquire() throws Exception {
                lease = semaphore.acquire();
            }

            @Override
            public void release() {
                semaphore.returnLease(lease);
            }
        };
    }

    private static String path(String name) {
        return "/bench/" + name.replace(' ', '-');
    }

    private static Contender.Lock adapted(InterProcessLock mutex) {
        return new Contender.Lock() {
            @Override
            public void acquire() throws Exception {
                mutex.acquire();
            }

            @Override
            public void release() throws Exception {
                mutex.release();
            }
        };
    }
}
