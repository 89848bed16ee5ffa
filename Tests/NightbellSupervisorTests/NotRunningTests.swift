import Glibc
import Launching
import NightbellCore
import NightbellSupervisor
import NightbellWire
import Testing

/// Declared clients that only a request would launch.
@Suite struct NotRunningTests {
    @Test func aStatusNamesAHundredAndCountsTheOthers() throws {
        let names = (100..<203).map { "org.example.bot.\($0)" }
        let launch = LaunchSpecification(arguments: ["/bin/true"], directory: "/", environment: [:])
        let declarations = try names.map { name in
            var registration = Registration(
                identifier: try #require(ClientIdentifier(name)), user: geteuid(), modes: .voip)
            registration.isLaunchable = true
            return Declaration(registration, launch: launch, identity: nil, startsWithSupervisor: false)
        }
        let supervisor = try TestSupervisor { $0.declarations = declarations }
        let status = try WireClient(path: supervisor.socketPath).status()
        #expect(status.notRunning == Array(names.prefix(100)) && status.notRunningUnnamed == 3)
    }
}
