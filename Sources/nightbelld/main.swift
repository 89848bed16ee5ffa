import ArgumentParser
import Configuration
import Logging
import Glibc

struct Daemon: ParsableCommand {
    @Option var config: String?
    mutating func run() throws {
        let r = ConfigReader(provider: InMemoryProvider(name: "x", values: [:]))
        print(r.string(forKey: "keepAlive.minimumTimeout") ?? "none")
        print(getpid())
        pause()
    }
}
Daemon.main()
