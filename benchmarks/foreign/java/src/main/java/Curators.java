import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.ExponentialBackoffRetry;

/** Curator's InterProcessMutex on one session, with the documented retry policy. */
final class Curators implements Contender.Library {
    private final CuratorFramework client;

    Curators(String hosts) {
        client = CuratorFrameworkFactory.newClient(hosts, new ExponentialBackoffRetry(1000, 3));
        client.start();
    }

    @Override
    public Contender.Lock lock(String name) {
        InterProcessMutex mutex = new InterProcessMutex(client, "/bench/" + name.replace(' ', '-'));
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
