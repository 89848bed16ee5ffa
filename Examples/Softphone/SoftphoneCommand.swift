import ArgumentParser
import Glibc
import SIPKit

@main
struct SoftphoneCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "nightbell-softphone",
        abstract: "A SIP phone that sleeps until it is called.",
        discussion: """
            Registers with a SIP server, hands its connection over to the Nightbell supervisor, and is suspended. \
            A call wakes it; it rings, answers, and sleeps again. Without a supervisor it works as well, awake.
            """)

    @Option(help: "The name under which the supervisor knows this phone, if it does not tell.")
    var identifier: String?

    @Option(help: "The user's name at the SIP server.")
    var user: String

    @Option(help: "The user's password; SOFTPHONE_PASSWORD in the environment hides it from other users.")
    var password: String?

    @Option(help: ArgumentHelp("Where the SIP server listens.", valueName: "host:port"))
    var registrar: String

    @Option(help: "The domain of the user's address, if it is not the registrar's host.")
    var domain: String?

    @Option(help: "How to reach the server: tcp or udp.")
    var transport: Transport = .tcp

    @Option(help: ArgumentHelp("How long a registration shall last.", valueName: "seconds"))
    var expires: Int = 3600

    @Option(help: ArgumentHelp("How long a call rings before it is answered.", valueName: "ms"))
    var answerAfter: Int = 1000

    @Option(help: "Where the supervisor listens, if not in the usual place.")
    var supervisorSocket: String?

    @Option(help: "Write one JSON line for each event to a file, to - (standard output) or to fd:N.")
    var report: String?

    enum Transport: String, ExpressibleByArgument, CaseIterable {
        case tcp, udp
    }

    func validate() throws {
        guard (1...86_400).contains(expires) else { throw ValidationError("--expires must be 1 to 86400.") }
        guard (0...60_000).contains(answerAfter) else {
            throw ValidationError("--answer-after must be 0 to 60000.")
        }
    }

    func run() throws {
        let server = try SIPAddress(parsing: registrar)
        let secret = password ?? getenv("SOFTPHONE_PASSWORD").map { String(cString: $0) } ?? ""
        var account = UserAgent.Configuration(user: user, password: secret, domain: domain ?? server.host)
        account.expires = .seconds(expires)
        account.answerAfter = .milliseconds(answerAfter)
        // Launched, or started by `nightbell run`, it finds its name in the environment.
        let given = identifier ?? getenv("NIGHTBELL_IDENTIFIER").map { String(cString: $0) }
        let name = given ?? "org.nightbell.softphone.\(user)"
        let eventLog = try EventLog(report, phone: user)
        let transport = transport
        let socketPath = supervisorSocket
        // This is the main thread, and everything happens on it.
        let succeeded = try MainActor.assumeIsolated {
            let phone = try Phone(
                account: account, server: server, transport: transport == .tcp ? .tcp : .udp,
                eventLog: eventLog
            )
            phone.connectToSupervisor(identifier: name, socketPath: socketPath)
            return phone.run()
        }
        if !succeeded { throw ExitCode.failure }
    }
}
