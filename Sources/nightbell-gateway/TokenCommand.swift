import ArgumentParser
import Gateway

struct TokenCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "token", abstract: "Makes, lists and revokes tokens.",
        subcommands: [CreateTokenCommand.self, ListTokensCommand.self, RevokeTokenCommand.self])
}

extension Scope: ExpressibleByArgument {}

struct CreateTokenCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "create", abstract: "Makes a token and prints it. Only its hash is stored.",
        discussion: "A running gateway accepts it within a second.")

    @Argument(help: "A name, to revoke it by: letters, digits, and . _ -")
    var name: String

    @Option(
        parsing: .upToNextOption,
        help: "What it permits: read (see clients), wake (and suspend, quit, launch them), push.")
    var scope: [Scope]

    @OptionGroup var tokenFile: TokenFileOption

    func validate() throws {
        guard Token.isName(name) else {
            throw ValidationError("expected a name of 1 to \(Token.longestName) letters, digits, and . _ -")
        }
        guard !scope.isEmpty else { throw ValidationError("--scope: expected read, wake or push") }
    }

    func run() throws {
        let (token, text) = Token.make(name: name, scopes: Set(scope))
        try TokenFile(tokenFile.tokens).change { tokens in
            guard !tokens.contains(where: { $0.name == name }) else {
                complain("there is a token \(name); revoke it first")
                throw ExitCode(1)
            }
            tokens.append(token)
        }
        print(text)
    }
}

struct ListTokensCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "list", abstract: "Lists the names of tokens and what they permit.")

    @OptionGroup var tokenFile: TokenFileOption

    func run() throws {
        for token in try TokenFile(tokenFile.tokens).read() {
            let scopes = Scope.allCases.filter(token.scopes.contains).map(\.rawValue)
            print("\(token.name)\t\(scopes.joined(separator: ","))")
        }
    }
}

struct RevokeTokenCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "revoke", abstract: "Makes a token invalid.",
        discussion: "A running gateway refuses it within a second, and ends its event streams soon after.")

    @Argument(help: "The token's name.")
    var name: String

    @OptionGroup var tokenFile: TokenFileOption

    func run() throws {
        try TokenFile(tokenFile.tokens).change { tokens in
            guard let place = tokens.firstIndex(where: { $0.name == name }) else {
                complain("there is no token \(name)")
                throw ExitCode(1)
            }
            tokens.remove(at: place)
        }
    }
}
