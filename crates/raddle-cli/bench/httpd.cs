// HttpListener with the thread pool. Its argument is the port.
using System.Net;
using System.Text;
using System.Threading;

static class Httpd {
  static readonly byte[] Body = Encoding.ASCII.GetBytes("Hello, World!");

  static void Serve(object state) {
    var response = ((HttpListenerContext)state).Response;
    try {
      response.ContentLength64 = Body.Length;
      response.OutputStream.Write(Body, 0, Body.Length);
      response.Close();
    } catch (HttpListenerException) { // the client has gone
    } catch (System.IO.IOException) {
    } catch (System.ObjectDisposedException) {
    }
  }

  static void Main(string[] arguments) {
    var listener = new HttpListener();
    listener.Prefixes.Add("http://127.0.0.1:" + arguments[0] + "/");
    listener.Start();
    for (;;) ThreadPool.QueueUserWorkItem(Serve, listener.GetContext());
  }
}
