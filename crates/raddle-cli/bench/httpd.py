"""http.server with a thread for each connection. Its argument is the port."""
import http.server
import sys

BODY = b"Hello, World!"


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # one write for head and body

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", str(len(BODY)))
        self.end_headers()
        self.wfile.write(BODY)

    def log_message(self, *arguments):
        pass


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 4096


Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
