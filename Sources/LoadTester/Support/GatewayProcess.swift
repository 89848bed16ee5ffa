import Glibc
import LinuxSystem

/// A `nightbell-gateway` that keeps pushes.
final class GatewayProcess {
    let port: UInt16
    /// Where the push service of the gateway listens: `gateway.pushSocket` of the supervisor.
    let pushSocket: String
    private let runDirectory: RunDirectory
    private let directory: String
    private var process: ChildProcess?

    private static let program = "nightbell-gateway"

    /// It is not started yet: the supervisor is told its push socket first.
    ///
    /// - Parameter name: of its store, which no other gateway of the run has.
    init(_ runDirectory: RunDirectory, name: String = "pushes") {
        self.runDirectory = runDirectory
        // Below the ports that the kernel gives to connections.
        port = UInt16.random(in: 20_000...30_000)
        pushSocket = runDirectory.path + "/push.sock"
        directory = runDirectory.path + "/\(name)"
        _ = mkdir(directory, 0o700)
    }

    /// nil: it does not run.
    var id: pid_t? { process?.id }

    func start(_ supervisor: PrivateSupervisor) throws {
        process = try runDirectory.start(
            Self.program,
            [
                "--listen", "\(port)", "--tokens", tokens, "--socket", supervisor.socketPath, "--push",
                directory, "--push-socket", pushSocket,
            ])
        let pushSocket = pushSocket
        try wait(for: "the gateway", atMost: .seconds(60)) {
            do throws(SystemError) {
                _ = try SeqPacketSocket.connect(path: pushSocket)
                return true
            } catch {
                return false
            }
        }
    }

    /// Makes a token with all scopes.
    func makeToken() throws -> String {
        let command = try runDirectory.start(
            Self.program,
            ["token", "create", "load", "--scope", "read", "wake", "push", "--tokens", tokens], log: "token")
        try wait(for: "a token", atMost: .seconds(60)) { !command.isRunning }
        runDirectory.end(command)
        let text = runDirectory.log(of: "token")
        guard command.exitStatus == 0, let token = text.split(separator: "\n").last else {
            throw LoadError.missing("there is no token: \(text)")
        }
        return String(token)
    }

    /// Ends it without warning.
    func kill() {
        guard let process else { return }
        Glibc.kill(process.id, SIGKILL)
        end()
    }

    func end() {
        if let process { runDirectory.end(process) }
        process = nil
    }

    private var tokens: String { directory + "/tokens" }
}
