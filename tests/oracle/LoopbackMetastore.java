import java.net.InetSocketAddress;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.hive.conf.HiveConf;
import org.apache.hadoop.hive.metastore.HiveMetaStore;
import org.apache.hadoop.hive.metastore.IHMSHandler;
import org.apache.hadoop.hive.metastore.TSetIpAddressProcessor;
import org.apache.hadoop.hive.metastore.txn.TxnDbUtil;
import org.apache.hadoop.hive.metastore.txn.TxnStore;
import org.apache.hadoop.hive.metastore.txn.TxnUtils;
import org.apache.thrift.server.TThreadPoolServer;
import org.apache.thrift.transport.TServerSocket;

/**
 * Apache Hive's metastore on 127.0.0.1 only, with the tables of its locks.
 *
 * <p>HiveMetaStore listens on every address, and creates the tables of its own objects but not those
 * of locks, which a schema script creates in production. Locks of clients that are gone are dropped
 * each second, as by Hive's house keeper. The argument is a port; hive-site.xml on the class path has
 * the settings.
 */
public final class LoopbackMetastore {
  private static final int THREADS_MAX = 64;

  private LoopbackMetastore() {}

  public static void main(String[] words) throws Exception {
    HiveConf settings = new HiveConf();
    TxnDbUtil.prepDb(settings);
    IHMSHandler handler =
        HiveMetaStore.newRetryingHMSHandler(
            new HiveMetaStore.HMSHandler("metastore", settings, false), settings);
    TxnStore locks = TxnUtils.getTxnStore(settings);
    ScheduledExecutorService keeper =
        Executors.newSingleThreadScheduledExecutor(
            work -> {
              Thread thread = new Thread(work, "house keeper");
              thread.setDaemon(true);
              return thread;
            });
    keeper.scheduleWithFixedDelay(locks::performTimeOuts, 1, 1, TimeUnit.SECONDS);
    InetSocketAddress address = new InetSocketAddress("127.0.0.1", Integer.parseInt(words[0]));
    TThreadPoolServer.Args arguments =
        new TThreadPoolServer.Args(new TServerSocket(address))
            .processor(new TSetIpAddressProcessor<>(handler))
            .maxWorkerThreads(THREADS_MAX);
    new TThreadPoolServer(arguments).serve();
  }
}
