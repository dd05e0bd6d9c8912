// Connections that the thread pool serves (async and await). The argument is the port.
using System.IO;
using System.Net;
using System.Net.Sockets;
using System.Text;
using System.Threading.Tasks;

static class Sockets {
  static readonly byte[] Response = Encoding.ASCII.GetBytes(
      "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 13\r\n\r\nHello, World!");

  static async Task Serve(TcpClient client) {
    var request = new byte[4096];
    try {
      client.NoDelay = true;
      var stream = client.GetStream();
      while (await stream.ReadAsync(request, 0, request.Length) > 0)
        await stream.WriteAsync(Response, 0, Response.Length);
    } catch (IOException) { // the client has gone
    } finally {
      client.Close();
    }
  }

  static void Main(string[] arguments) {
    var listener = new TcpListener(IPAddress.Loopback, int.Parse(arguments[0]));
    listener.Start(4096);
    for (;;) {
      var client = listener.AcceptTcpClient();
      Task.Run(() => Serve(client));
    }
  }
}
