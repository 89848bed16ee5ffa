import EdgeTestSupport
import Glibc
import LinuxSystem

/// A message bus of a test's own, in a directory of its own.
final class PrivateBus {
    private let directory: TemporaryDirectory
    private var daemon: Helper?
    let address: String
    private let path: String
    private let user: uid_t?

    /// - Parameters:
    ///   - starts: false: it is started later, by `start`.
    ///   - mostQueued: the bytes that wait for one peer, before signals to it are discarded.
    ///   - user: it is the bus of the session of this user, at its usual place; other users are let in as
    ///     well. Needs root.
    init(starts: Bool = true, mostQueued: Int = 100_000_000, user: uid_t? = nil) throws {
        self.user = user
        directory = try TemporaryDirectory()
        // Monitors of other users connect as well.
        chmod(directory.path, 0o755)
        if let user {
            for made in ["/run/user", Self.runtimeDirectory(of: user)] { mkdir(made, 0o755) }
            chown(Self.runtimeDirectory(of: user), user, user)
            path = Self.runtimeDirectory(of: user) + "/bus"
        } else {
            path = directory.file("bus")
        }
        address = "unix:path=\(path)"
        let file = try OwnedDescriptor(
            opening: directory.file("bus.conf"), O_WRONLY | O_CREAT, mode: 0o644)
        let text = """
            <!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
             "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
            <busconfig>
              <listen>\(address)</listen>
              <auth>EXTERNAL</auth>
              <policy context="default">
                <allow send_destination="*" eavesdrop="true"/>
                <allow eavesdrop="true"/>
                <allow own="*"/>
                <allow user="*"/>
              </policy>
              <limit name="max_outgoing_bytes">\(mostQueued)</limit>
            </busconfig>
            """
        write(file.rawValue, text, text.utf8.count)
        if starts { try start() }
    }

    func start() throws {
        var ends: [CInt] = [-1, -1]
        _ = try systemCall("pipe") { pipe(&ends) }
        let input = OwnedDescriptor(adopting: ends[0])
        let output = OwnedDescriptor(adopting: ends[1])
        let identity =
            user.map { ["/usr/bin/setpriv", "--reuid=\($0)", "--regid=\($0)", "--clear-groups"] } ?? []
        daemon = try Helper(
            identity + [
                "/usr/bin/dbus-daemon", "--nofork", "--print-address=1",
                "--config-file=" + directory.file("bus.conf"),
            ], output: output.rawValue)
        // It says its address once it listens.
        let readiness = Poll.wait(input.rawValue, for: .readable, timeoutMilliseconds: 60_000)
        try check(readiness.contains(.readable), "dbus-daemon did not start")
    }

    func stop() {
        daemon?.end()
        unlink(path)
    }

    private static func runtimeDirectory(of user: uid_t) -> String { "/run/user/\(user)" }

    deinit {
        guard let user else { return }
        stop()
        rmdir(Self.runtimeDirectory(of: user))
    }

    // MARK: Calls

    /// The answer to a call in GVariant's text format; empty if the call failed.
    func answer(_ destination: String, _ path: String, _ method: String, _ arguments: String...) throws
        -> String
    {
        try output(
            [
                "/usr/bin/gdbus", "call", "--address", address, "--dest", destination, "--object-path", path,
                "--method", method,
            ] + arguments)
    }

    /// The unique name of a process's connection.
    func uniqueName(of pid: pid_t) throws -> String? {
        let daemon = "org.freedesktop.DBus"
        let names = try answer(daemon, "/org/freedesktop/DBus", "org.freedesktop.DBus.ListNames")
        for name in names.split(separator: "'").map(String.init) where name.hasPrefix(":") {
            let owner = try answer(
                daemon, "/org/freedesktop/DBus", "org.freedesktop.DBus.GetConnectionUnixProcessID", name)
            if owner.contains("uint32 \(pid),") { return name }
        }
        return nil
    }

    /// Waits until a peer owns the name.
    func waitForOwner(of name: String) throws {
        try check(
            try run(
                ["/usr/bin/gdbus", "wait", "--session", "--timeout", "60", name],
                environment: ["DBUS_SESSION_BUS_ADDRESS": address], isQuiet: true),
            "\(name) has no owner")
    }
}

/// A service of python-dbusmock on a private bus.
final class MockService {
    let bus: PrivateBus
    let name: String
    let path: String
    private let process: Helper

    /// One of its templates.
    ///
    /// - Parameter parameters: of the template, as JSON.
    init(
        _ bus: PrivateBus, template: String, name: String, path: String, parameters: String? = nil
    ) throws {
        self.bus = bus
        self.name = name
        self.path = path
        process = try Helper(
            ["/usr/bin/python3", "-m", "dbusmock", "--system", "--template", template]
                + (parameters.map { ["--parameters", $0] } ?? []),
            environment: [
                "DBUS_SYSTEM_BUS_ADDRESS": bus.address, "DBUS_SESSION_BUS_ADDRESS": bus.address,
            ])
        try bus.waitForOwner(of: name)
    }

    /// One with a single object.
    init(
        _ bus: PrivateBus, name: String, path: String, interface: String, isObjectManager: Bool = false
    ) throws {
        self.bus = bus
        self.name = name
        self.path = path
        process = try Helper(
            ["/usr/bin/python3", "-m", "dbusmock", "--system"] + (isObjectManager ? ["-m"] : [])
                + [name, path, interface],
            environment: [
                "DBUS_SYSTEM_BUS_ADDRESS": bus.address, "DBUS_SESSION_BUS_ADDRESS": bus.address,
            ])
        try bus.waitForOwner(of: name)
    }

    func end() { process.end() }

    var pid: pid_t { process.pid }

    static let control = "org.freedesktop.DBus.Mock"

    /// Calls a method of the mock itself, on its first object or another one.
    func tell(_ method: String, at path: String? = nil, _ arguments: String...) throws {
        let command =
            [
                "/usr/bin/gdbus", "call", "--address", bus.address, "--dest", name, "--object-path",
                path ?? self.path, "--method", method.contains(".") ? method : "\(Self.control).\(method)",
            ] + arguments
        let silence = try OwnedDescriptor(opening: "/dev/null", O_WRONLY)
        let pid = try spawn(command, output: silence.rawValue)
        var status: CInt = 0
        while waitpid(pid, &status, 0) == -1, errno == EINTR {}
        try check(status == 0, "\(command) failed")
    }

    /// Changes properties, with the signal that tells of it. `properties` is a dictionary in GVariant's text
    /// format.
    func update(_ interface: String, at path: String? = nil, _ properties: String) throws {
        try tell("UpdateProperties", at: path, interface, properties)
    }

    func emit(
        _ interface: String, at path: String? = nil, _ signal: String, _ signature: String, _ values: String
    )
        throws
    {
        try tell("EmitSignal", at: path, interface, signal, signature, values)
    }
}
