/// The program that moves files, and where it keeps them.
package struct TransferProgram: Sendable, Equatable {
    package var path: String
    /// Its variables, such as those of proxies.
    package var environment: [String: String] = [:]
    /// More of its options, such as its limits.
    package var arguments: [String] = []
    /// A store with sessions has a process at least this often.
    package var visitInterval: Duration = .seconds(86_400)

    package init(path: String, environment: [String: String] = [:]) {
        self.path = path
        self.environment = environment
    }

    /// For a user's process, with the directory of its store.
    func program(of user: UInt32, changesUser: Bool, directory: String) -> HelperProgram {
        var program = HelperProgram(path: path, environment: environment)
        program.arguments = ["--supervised", "--directory", directory] + arguments
        if changesUser { program.arguments += ["--user", "\(user)"] }
        return program
    }
}
