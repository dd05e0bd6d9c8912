import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.logging.Level;
import java.util.logging.Logger;
import org.apache.catalina.connector.Connector;
import org.apache.catalina.startup.Tomcat;

/** Tomcat with one servlet, 200 threads. Its arguments are the port and a folder. */
public class TomcatServer {
  static final byte[] BODY = "Hello, World!".getBytes(StandardCharsets.US_ASCII);

  static class Hello extends HttpServlet {
    @Override
    protected void doGet(HttpServletRequest request, HttpServletResponse response)
        throws IOException {
      response.setContentType("text/plain");
      response.setContentLength(BODY.length);
      response.getOutputStream().write(BODY);
    }
  }

  public static void main(String[] arguments) throws Exception {
    Logger.getLogger("").setLevel(Level.WARNING);
    Tomcat tomcat = new Tomcat();
    tomcat.setBaseDir(arguments[1]);
    Connector connector = new Connector();
    connector.setPort(Integer.parseInt(arguments[0]));
    connector.setProperty("address", "127.0.0.1");
    connector.setProperty("maxThreads", "200");
    connector.setProperty("acceptCount", "4096");
    connector.setProperty("maxKeepAliveRequests", "-1");
    tomcat.setConnector(connector);
    var context = tomcat.addContext("", null);
    Tomcat.addServlet(context, "hello", new Hello());
    context.addServletMappingDecoded("/*", "hello");
    tomcat.start();
    tomcat.getServer().await();
  }
}
