// A monitor of the machine that knows nothing: it passes every packet between the supervisor, at descriptor 3, and a test,
// at the socket that it is given. It ends when either end does.
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

static int pass(int from, int to) {
    static char packet[1 << 18];
    ssize_t length = recv(from, packet, sizeof packet, 0);
    return length > 0 && send(to, packet, (size_t)length, MSG_NOSIGNAL) == length;
}

int main(int count, char **arguments) {
    enum { supervisor = 3 };
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (count != 2 || strlen(arguments[1]) >= sizeof address.sun_path) return 64;
    strcpy(address.sun_path, arguments[1]);
    int test = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (test < 0 || connect(test, (struct sockaddr *)&address, sizeof address) != 0) return 69;
    struct pollfd ends[] = {{.fd = supervisor, .events = POLLIN}, {.fd = test, .events = POLLIN}};
    for (;;) {
        if (poll(ends, 2, -1) < 0) return 71;
        if (ends[0].revents && !pass(supervisor, test)) return 0;
        if (ends[1].revents && !pass(test, supervisor)) return 0;
    }
}
