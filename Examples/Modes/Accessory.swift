import Glibc
import Nightbell

/// A session with a device that is attached, such as `/dev/serial/by-id/usb-reader`. Its data wakes this
/// client, and so does its coming and going, which also launches it. When the device returns, the session is
/// made again.
final class Accessory: Service {
    private let path: String
    private var client: Client?
    private var session: ParkedSocket?

    private init(_ path: String) { self.path = path }

    static func run(_ path: String) throws -> Never {
        let accessory = Accessory(path)
        let loop = Loop(accessory)
        let client = try loop.makeClient("accessory", [.externalAccessory])
        accessory.client = client
        try client.observe("reader", .accessory(path: path))
        accessory.open()
        try enterBackground(client)
        try loop.run(client)
    }

    var polled: pollfd { pollfd(fd: session?.descriptor ?? -1, events: Int16(POLLIN), revents: 0) }

    func note(_ occurrence: Occurrence) {
        switch occurrence.kind {
        case .connected:
            // It may be another node than before, even if this client has not seen the old one go.
            end()
            open()
        case .disconnected: end()
        default: break
        }
    }

    private func open() {
        // Without a device there is nothing to do until the observation tells of one.
        let descriptor = Glibc.open(path, O_RDWR | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)
        guard descriptor >= 0 else { return }
        // A terminal passes bytes on as they are; other devices do that anyway.
        var settings = termios()
        if tcgetattr(descriptor, &settings) == 0 {
            cfmakeraw(&settings)
            tcsetattr(descriptor, TCSANOW, &settings)
        }
        do throws(NightbellError) {
            session = try client?.handOver(descriptor, as: .device, name: "reader")
            report("has a session")
        } catch {
            report("cannot hand the device over: \(error)")
            close(descriptor)
        }
    }

    func serve() {
        guard let session else { return }
        var bytes = [UInt8](repeating: 0, count: 4_096)
        while true {
            let count = read(session.descriptor, &bytes, bytes.count)
            guard count > 0 else {
                // It has hung up.
                if count == 0 || errno != EAGAIN && errno != EINTR { end() }
                return
            }
            report("data: \(Array(bytes.prefix(count)))")
        }
    }

    private func end() {
        guard let session else { return }
        self.session = nil
        report("the session has ended")
        do throws(NightbellError) {
            try client?.close(socket: session)
        } catch {
            report("cannot release the device: \(error)")
        }
    }
}
