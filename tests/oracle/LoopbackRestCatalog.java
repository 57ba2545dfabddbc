package org.apache.iceberg.rest;

import java.io.FileInputStream;
import java.net.InetSocketAddress;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import org.apache.iceberg.CatalogUtil;
import org.eclipse.jetty.ee10.servlet.ServletContextHandler;
import org.eclipse.jetty.ee10.servlet.ServletHolder;
import org.eclipse.jetty.server.Server;

/**
 * Apache Iceberg's REST catalog of its test fixtures, on 127.0.0.1 only.
 *
 * <p>RESTCatalogServer of the fixtures has no setting for the address and listens on all of them.
 * This class builds the same adapter and the same servlet, and binds them to loopback. Arguments: a
 * port, and a file with the properties of the catalog. It is in this package because the adapter
 * is not public.
 */
public final class LoopbackRestCatalog {
  private LoopbackRestCatalog() {}

  public static void main(String[] words) throws Exception {
    Properties read = new Properties();
    try (FileInputStream file = new FileInputStream(words[1])) {
      read.load(file);
    }
    Map<String, String> config = new HashMap<>();
    read.stringPropertyNames().forEach(name -> config.put(name, read.getProperty(name)));
    RESTCatalogServer.CatalogContext context =
        new RESTCatalogServer.CatalogContext(
            CatalogUtil.buildIcebergCatalog("oracle", config, null), config);
    ServletContextHandler handler =
        new ServletContextHandler(ServletContextHandler.NO_SESSIONS);
    handler.addServlet(
        new ServletHolder(new RESTCatalogServlet(new RESTServerCatalogAdapter(context))), "/*");
    Server server =
        new Server(new InetSocketAddress("127.0.0.1", Integer.parseInt(words[0])));
    server.setHandler(handler);
    server.start();
    server.join();
  }
}
