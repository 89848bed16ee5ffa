import ArgumentParser
import Glibc
import LinuxSystem
import Nightbell
import Presentation

struct PushCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "push", abstract: "Leaves a message for a client at the push service.",
        discussion: """
            The client is woken or launched for it, no more often in an hour than is configured, unless its user has quit it: \
            then the message waits. It needs nightbell-gateway with --push. For the owner of the client, and root.
            """)

    @Option(
        name: .customLong("content-available"),
        help: ArgumentHelp(
            "The file with the message, at most 4,096 bytes; - is the standard input.", valueName: "file"))
    var file: String
    @Option(help: "When the client may be woken: very-low, low, normal or high.")
    var urgency = Urgency.normal
    @Option(
        help: ArgumentHelp(
            "How long it is kept; its client has 5 s at least.", valueName: "seconds"))
    var lifetime: UInt32 = 86_400
    @Option(
        help: ArgumentHelp(
            "Replaces a waiting message of the same topic: at most 32 characters out of A-Z a-z 0-9 - _.",
            valueName: "word"))
    var topic = ""
    @OptionGroup var target: Target

    enum Urgency: String, ExpressibleByArgument, CaseIterable {
        case veryLow = "very-low"
        case low, normal, high
    }

    private static let longest = 4_096

    func run() throws {
        let body: [UInt8]
        do throws(SystemError) {
            let source = try OwnedDescriptor(opening: file == "-" ? "/dev/stdin" : file, O_RDONLY)
            body = try SmallFile.read(source, limit: Self.longest + 1)
        } catch {
            complain("\(file): \(SystemError.message(for: error.code))")
            throw ExitCode(EX_NOINPUT)
        }
        guard body.count <= Self.longest else {
            complain("\(file) is longer than \(Self.longest) bytes")
            throw ExitCode(EX_DATAERR)
        }
        try target.act("push") { administration, client throws(NightbellError) in
            let urgency = PushUrgency(rawValue: urgency.rawValue) ?? .normal
            try administration.push(
                body, to: client, urgency, lifetime: .seconds(Int64(lifetime)), topic: topic)
        }
    }
}
