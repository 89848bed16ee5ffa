import CFloors
import Glibc
import Nightbell

/// Counts of the far end of many pinged connections, in memory that several processes map.
// @unchecked: each word that is read while another process writes it stands for itself.
final class SharedPings: @unchecked Sendable {
    let descriptor: CInt
    let pointer: UnsafeMutablePointer<cfloors_pings>

    init() throws(LoadError) {
        descriptor = cfloors_memory("nightbell-pings")
        guard descriptor >= 0, ftruncate(descriptor, off_t(MemoryLayout<cfloors_pings>.size)) == 0 else {
            throw LoadError(failed: "memfd_create")
        }
        pointer = try Self.map(descriptor)
    }

    init(inherited descriptor: CInt) throws(LoadError) {
        self.descriptor = descriptor
        pointer = try Self.map(descriptor)
    }

    deinit {
        munmap(pointer, MemoryLayout<cfloors_pings>.size)
        close(descriptor)
    }

    private static func map(_ descriptor: CInt) throws(LoadError) -> UnsafeMutablePointer<cfloors_pings> {
        let size = MemoryLayout<cfloors_pings>.size
        let memory = mmap(nil, size, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0)
        guard let memory, memory != MAP_FAILED else { throw LoadError(failed: "mmap") }
        return memory.bindMemory(to: cfloors_pings.self, capacity: 1)
    }

    func give(_ order: cfloors_pings_order) { pointer.pointee.order = order.rawValue }

    /// Pings heard on each of the first connections.
    func heard(_ connections: Int) -> [UInt32] {
        Array(UnsafeBufferPointer(start: cfloors_pings_heard(pointer), count: connections))
    }

    /// Nanoseconds from each of the far end's pings to its answer.
    var latencies: [Int64] {
        let count = min(Int(pointer.pointee.answered), Int(cfloors_pings_capacity))
        return Array(UnsafeBufferPointer(start: cfloors_pings_latencies(pointer), count: count))
    }
}

/// The processes of an `offload` run: the far end, the sleepers, and the floor. Each inherits the shared
/// memory as descriptor 3. The far end inherits the listening socket as descriptor 4, the sleepers a lifetime
/// pipe.
struct PingArguments {
    var path: String
    var sockets: Int
    var clients: Int
    var intervalNanoseconds: Int64
    var supervisorSocket: String

    /// How early a ping may be, as in every profile: the floor gets the same freedom as the supervisor.
    private var windowNanoseconds: Int64 { intervalNanoseconds / 5 }

    var list: [String] { [path, "\(sockets)", "\(clients)", "\(intervalNanoseconds)", supervisorSocket] }

    init(
        path: String, sockets: Int, clients: Int, intervalNanoseconds: Int64, supervisorSocket: String = "-"
    ) {
        self.path = path
        self.sockets = sockets
        self.clients = clients
        self.intervalNanoseconds = intervalNanoseconds
        self.supervisorSocket = supervisorSocket
    }

    init(_ arguments: [String]) throws(LoadError) {
        guard arguments.count == 5, let sockets = Int(arguments[1]), let clients = Int(arguments[2]),
            let interval = Int64(arguments[3])
        else { throw .missing("arguments") }
        self.init(
            path: arguments[0], sockets: sockets, clients: clients, intervalNanoseconds: interval,
            supervisorSocket: arguments[4])
    }

    func runPeer() throws {
        _ = cfloors_raise_descriptor_limit()
        let shared = try SharedPings(inherited: 3)
        let code = cfloors_ping_peer(4, sockets, intervalNanoseconds, shared.pointer)
        guard code == 0 else { throw LoadError("the far end", code: code) }
    }

    func runFloor() throws {
        _ = cfloors_raise_descriptor_limit()
        let shared = try SharedPings(inherited: 3)
        let descriptors = try (0..<sockets).map { _ throws(LoadError) in try connection() }
        let code = cfloors_pinger(
            descriptors, sockets, intervalNanoseconds, windowNanoseconds, shared.pointer)
        guard code == 0 else { throw LoadError("the floor", code: code) }
    }

    func runSleepers() throws {
        cfloors_ignore_children()
        _ = cfloors_raise_descriptor_limit()
        var children: [pid_t] = []
        defer { for child in children { kill(child, SIGKILL) } }
        for index in 0..<clients {
            let child = cfloors_fork()
            guard child >= 0 else { throw LoadError(failed: "fork") }
            if child == 0 { becomeSleeper(index) }
            children.append(child)
        }
        waitForEnd(4)
    }

    private func becomeSleeper(_ index: Int) -> Never {
        do {
            signal(SIGTERM, SIG_DFL)
            try sleep(index)
        } catch {
            logError("sleeper \(index): \(error)")
        }
        _exit(1)
    }

    private func sleep(_ index: Int) throws {
        var configuration = Client.Configuration(
            identifier: "org.nightbell.load.p\(index)", socketPath: supervisorSocket)
        configuration.driver = .manual
        configuration.reconnects = false
        configuration.requestTimeout = .seconds(60)
        let client = try Client(configuration)
        let profile = Profile.line(
            [.init("ping", reply: "pong")], ping: "PING", answer: "PONG", end: .newline,
            interval: .nanoseconds(intervalNanoseconds), answerWithin: .seconds(20))
        let offers = try (0..<sockets / clients).map { _ throws(LoadError) in
            Client.SocketToPark(try connection(), as: .voip, profile: profile)
        }
        for result in try client.handOver(offers) { _ = try result.get() }
        try client.enterBackground()
        var waiting = pollfd(fd: client.fileDescriptor, events: Int16(POLLIN), revents: 0)
        while true {
            guard poll(&waiting, 1, -1) >= 0 || errno == EINTR else { throw LoadError(failed: "poll") }
            try client.processPending()
        }
    }

    private func connection() throws(LoadError) -> CInt {
        let descriptor = socket(AF_UNIX, CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
        guard descriptor >= 0 else { throw LoadError(failed: "socket") }
        guard UnixPath(path).use({ connect(descriptor, $0, $1) }) == 0 else {
            throw LoadError(failed: "connect \(path)")
        }
        return descriptor
    }
}

/// The address of a Unix socket.
struct UnixPath {
    private var address = sockaddr_un()

    init(_ path: String) {
        address.sun_family = sa_family_t(AF_UNIX)
        let bytes = Array(path.utf8.prefix(107))
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: bytes) }
    }

    func use(_ body: (UnsafePointer<sockaddr>, socklen_t) -> CInt) -> CInt {
        withUnsafePointer(to: address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                body($0, socklen_t(MemoryLayout<sockaddr_un>.size))
            }
        }
    }
}
