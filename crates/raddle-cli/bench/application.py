"""What gunicorn serves."""
BODY = b"Hello, World!"


def application(environ, start_response):
    start_response("200 OK", [("Content-Length", str(len(BODY)))])
    return [BODY]
