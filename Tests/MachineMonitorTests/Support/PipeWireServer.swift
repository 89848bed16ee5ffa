import EdgeTestSupport
import Glibc
import LinuxSystem

/// PipeWire with WirePlumber and a sink that discards its input, in a runtime directory of a test's own.
final class PipeWireServer {
    let bus: PrivateBus
    private let directory: TemporaryDirectory
    private var processes: [Helper] = []

    var runtimeDirectory: String { directory.path }

    var environment: [String: String] {
        [
            "XDG_RUNTIME_DIR": directory.path, "HOME": directory.path,
            "DBUS_SYSTEM_BUS_ADDRESS": bus.address, "DBUS_SESSION_BUS_ADDRESS": bus.address,
        ]
    }

    init() throws {
        bus = try PrivateBus()
        directory = try TemporaryDirectory()
        chmod(directory.path, 0o700)
        try Self.writeSilence(directory.file("silence.wav"), milliseconds: 120_000)
        try Self.writeSilence(directory.file("trial.wav"), milliseconds: 50)
    }

    deinit {
        stop()
        // Those that the programs have made.
        _ = try? run(["/bin/rm", "-rf", directory.path])
    }

    func start() throws {
        processes = [try Helper(["/usr/bin/pipewire"], environment: environment)]
        let socket = directory.file("pipewire-0")
        let isThere = eventually(within: 60_000) { access(socket, F_OK) == 0 }
        try check(isThere, "PipeWire did not start")
        processes.append(try Helper(["/usr/bin/wireplumber"], environment: environment))
        let sink =
            "{ factory.name=support.null-audio-sink node.name=discard media.class=Audio/Sink object.linger=true "
            + "audio.position=[FL FR] }"
        let isMade = try eventually(within: 60_000) {
            try run(
                ["/usr/bin/pw-cli", "create-node", "adapter", sink], environment: environment, isQuiet: true)
        }
        try check(isMade, "PipeWire makes no sink")
        // A stream that comes before WirePlumber knows the sink is refused.
        let plays = try eventually(within: 60_000) {
            try run(
                ["/usr/bin/pw-cat", "-p", directory.file("trial.wav")], environment: environment,
                isQuiet: true)
        }
        try check(plays, "PipeWire does not play")
    }

    func stop() {
        for process in processes.reversed() { process.end() }
        processes = []
        unlink(directory.file("pipewire-0"))
    }

    /// Plays silence: a stream is a stream.
    func play() throws -> Helper {
        try Helper(["/usr/bin/pw-cat", "-p", directory.file("silence.wav")], environment: environment)
    }

    /// Records the sink's output.
    func record() throws -> Helper {
        try Helper(
            ["/usr/bin/pw-cat", "-r", "--target", "discard", directory.file("record.wav")],
            environment: environment)
    }

    /// Mutes the streams of a process, or lets them be heard again; retried until WirePlumber knows them.
    func setMuted(_ isMuted: Bool, of pid: pid_t) throws {
        let command = ["/usr/bin/wpctl", "set-mute", "-p", "\(pid)", isMuted ? "1" : "0"]
        let isDone = try eventually(within: 60_000) {
            try run(command, environment: environment, isQuiet: true)
        }
        try check(isDone, "wpctl cannot mute \(pid)")
    }

    /// 16 bit, 8 kHz, one channel.
    private static func writeSilence(_ path: String, milliseconds: UInt32) throws {
        let size = milliseconds * 16
        func little(_ value: UInt32, _ bytes: Int) -> [UInt8] {
            (0..<bytes).map { UInt8(truncatingIfNeeded: value >> (8 * UInt32($0))) }
        }
        var header = Array("RIFF".utf8) + little(36 + size, 4) + Array("WAVEfmt ".utf8) + little(16, 4)
        header += little(1, 2) + little(1, 2) + little(8_000, 4) + little(16_000, 4) + little(2, 2)
        header += little(16, 2) + Array("data".utf8) + little(size, 4)
        let file = try OwnedDescriptor(opening: path, O_WRONLY | O_CREAT, mode: 0o600)
        let bytes = header + [UInt8](repeating: 0, count: Int(size))
        _ = try systemCall("write") { write(file.rawValue, bytes, bytes.count) }
    }
}
