import CTestSupport
import EdgeTestSupport
import Foundation
import Launching
import LinuxSystem
import NightbellCore
import NightbellSupervisor
import NightbellWire
import SwiftProtobuf
import Testing

/// The gateway's user sees all clients and may wake them, and gets nothing that belongs to them.
@Suite(.enabled(if: geteuid() == 0, "needs root"), .timeLimit(.minutes(40)))
struct GatewayRightsTests {
    private static let name = "org.example.phone"
    private static let gateway: UInt32 = 65_534
    private static let owner: UInt32 = 65_533

    /// A connection of another user. The kernel keeps the credentials with which it was made.
    private func connect(_ supervisor: TestSupervisor, as user: UInt32) throws -> WireClient {
        // Unchecked: the thread has ended when the connection is used.
        struct Made: @unchecked Sendable { let client: WireClient }
        let path = supervisor.socketPath
        return try OwnThread {
            guard ctest_become(user) == 0 else { throw TestFailure("cannot become another user") }
            return Made(client: try WireClient(path: path))
        }.join().client
    }

    private func error(_ client: WireClient, _ body: WireClientMessage.OneOf_Body) throws -> WireErrorCode? {
        guard case .error(let error) = try client.ask(body) else { return nil }
        return error.code
    }

    private func sleeper(_ supervisor: TestSupervisor) throws -> WireClient {
        let client = try connect(supervisor, as: Self.owner)
        let hello = WireHello.with {
            $0.version = 1
            $0.identifier = Self.name
            $0.modes = [.voip, .location]
            $0.launch = .with {
                $0.arguments = ["/bin/true", "--password", "secret"]
                $0.directory = "/"
                $0.environment = ["TOKEN": "secret"]
            }
        }
        guard case .welcome = try client.ask(.hello(hello)) else { throw TestFailure("not welcome") }
        let observe = WireObserve.with {
            $0.name = "home"
            $0.location = .with { $0.service = .significantChange }
        }
        guard case .done = try client.ask(.observe(observe)) else { throw TestFailure("not observed") }
        try client.goToSleep()
        return client
    }

    @Test(arguments: [true, false])
    func itSeesAllClientsAndMayWakeThemIfThatIsGranted(mayWake: Bool) throws {
        let supervisor = try TestSupervisor {
            $0.gateway = GatewayRights(user: Self.gateway, mayWake: mayWake)
        }
        let client = try sleeper(supervisor)
        let gateway = try connect(supervisor, as: Self.gateway)
        #expect(try gateway.list().map(\.identifier) == [Self.name])
        let shown = try gateway.show(Self.name)
        #expect(shown.uid == Self.owner && !shown.hasLaunch && shown.observations.isEmpty)
        // The others see what they saw before.
        let owner = try connect(supervisor, as: Self.owner).show(Self.name)
        #expect(owner.launch.environment == ["TOKEN": "secret"] && owner.observations.count == 1)
        #expect(try gateway.status().users.map(\.uid) == [Self.owner])

        let watcher = try connect(supervisor, as: Self.gateway)
        guard case .done = try watcher.ask(.watch(WireWatch())) else { throw TestFailure("no watching") }
        let refusal: WireErrorCode? = mayWake ? nil : .permissionDenied
        #expect(try error(gateway, .wakeClient(.with { $0.identifier = Self.name })) == refusal)
        if mayWake {
            try client.finish(try client.wake())
            let event = try watcher.event { $0.kind == "wake" }
            #expect(event.identifier == Self.name)
        } else {
            for body: WireClientMessage.OneOf_Body in [
                .suspendClient(.with { $0.identifier = Self.name }),
                .quitClient(.with { $0.identifier = Self.name }),
                .launchClient(.with { $0.identifier = Self.name }),
            ] {
                #expect(try error(gateway, body) == .permissionDenied)
            }
            #expect(
                try error(gateway, .wakeClient(.with { $0.identifier = "org.example.none" })) == .noSuchClient
            )
        }
        try supervisor.stop()
    }

    @Test func itIsNotToldThatALocationWokeAClient() throws {
        let supervisor = try TestSupervisor {
            $0.gateway = GatewayRights(user: Self.gateway, mayWake: false)
        }
        let client = try sleeper(supervisor)
        let watchers = [
            try connect(supervisor, as: Self.owner), try connect(supervisor, as: Self.gateway),
        ]
        for watcher in watchers {
            guard case .done = try watcher.ask(.watch(WireWatch())) else {
                throw TestFailure("no watching")
            }
        }
        let moved = WireSimulate.with {
            $0.identifier = Self.name
            $0.occurrence = .with {
                $0.name = "home"
                $0.moved = .with {
                    $0.latitudeDegrees = 52
                    $0.longitudeDegrees = 13
                    $0.accuracyM = 500
                }
            }
        }
        guard case .done = try connect(supervisor, as: Self.owner).ask(.simulate(moved)) else {
            throw TestFailure("not simulated")
        }
        try client.finish(try client.wake())
        let events = try watchers.map { watcher in
            var events: [WireWatchEvent] = []
            // In the order in which they happened.
            while events.last?.kind != "wake" {
                events.append(try watcher.event { _ in true })
            }
            return events
        }
        #expect(events[0].contains { $0.kind == "observed" } && events[0].last?.detail == "location")
        #expect(!events[1].contains { $0.kind == "observed" } && events[1].last?.detail.isEmpty == true)
        try supervisor.stop()
    }

    /// Everything that names a client.
    private func requests(_ name: String) -> [WireClientMessage.OneOf_Body] {
        let simulate = WireSimulate.with {
            $0.identifier = name
            $0.event = .networkChange
        }
        let owner = WireShow.with {
            $0.identifier = name
            $0.ownerOnly = true
        }
        return [
            .show(.with { $0.identifier = name }), .show(owner), .wakeClient(.with { $0.identifier = name }),
            .suspendClient(.with { $0.identifier = name }), .quitClient(.with { $0.identifier = name }),
            .launchClient(.with { $0.identifier = name }), .forgetClient(.with { $0.identifier = name }),
            .simulate(simulate),
        ]
    }

    @Test func strangersLearnNothingOfDeclaredAndQuitClients() throws {
        let (declared, quit) = ("org.example.declared", "org.example.quit")
        let declarations = try [declared, quit].map { name in
            var registration = Registration(
                identifier: try #require(ClientIdentifier(name)), user: Self.owner, modes: .voip)
            registration.isLaunchable = true
            return Declaration(
                registration,
                launch: LaunchSpecification(arguments: ["/bin/true"], directory: "/", environment: [:]),
                identity: nil, startsWithSupervisor: false)
        }
        let supervisor = try TestSupervisor {
            $0.gateway = GatewayRights(user: Self.gateway, mayWake: false)
            $0.declarations = declarations
        }
        let owner = try connect(supervisor, as: Self.owner)
        guard case .done = try owner.ask(.quitClient(.with { $0.identifier = quit })) else {
            throw TestFailure("not quit")
        }

        let stranger = try connect(supervisor, as: 65_532)
        #expect(try stranger.list().isEmpty)
        let status = try stranger.status()
        #expect(status.notRunning.isEmpty && status.notRunningUnnamed == 0 && status.users.isEmpty)
        // Word by word what is said of a client that there is not.
        let unknown = try requests("org.example.none").map { try stranger.ask($0) }
        for name in [declared, quit] {
            #expect(try requests(name).map { try stranger.ask($0) } == unknown, "\(name)")
        }
        // The gateway sees them, and does nothing to them.
        let gateway = try connect(supervisor, as: Self.gateway)
        #expect(try gateway.status().notRunning == [declared, quit])
        for name in [declared, quit] {
            let refusals = try [
                error(gateway, .launchClient(.with { $0.identifier = name })),
                error(gateway, .quitClient(.with { $0.identifier = name })),
                error(gateway, .forgetClient(.with { $0.identifier = name })),
            ]
            #expect(refusals == [.permissionDenied, .noSuchClient, .noSuchClient], "\(name)")
        }
        #expect(try owner.status().notRunning == [declared, quit] && owner.list().isEmpty)
        try supervisor.stop()
    }

    @Test func itMayDoNothingElse() throws {
        let supervisor = try TestSupervisor {
            $0.gateway = GatewayRights(user: Self.gateway, mayWake: true)
        }
        let client = try sleeper(supervisor)
        let gateway = try connect(supervisor, as: Self.gateway)
        let simulate = WireSimulate.with {
            $0.identifier = Self.name
            $0.event = .networkChange
        }
        for body: WireClientMessage.OneOf_Body in [
            .simulate(simulate), .relieveMemory(WireRelieveMemory()), .upgrade(WireUpgrade()),
            .reload(WireReload()),
        ] {
            #expect(try error(gateway, body) == .permissionDenied, "\(body)")
        }
        #expect(try error(gateway, .forgetClient(.with { $0.identifier = Self.name })) == .noSuchClient)
        // It cannot take the client's place, nor any other.
        for identifier in [Self.name, "org.example.gateway"] {
            let pretender = try connect(supervisor, as: Self.gateway)
            let hello = WireHello.with {
                $0.version = 1
                $0.identifier = identifier
                $0.takesSocketsBack = true
            }
            #expect(try error(pretender, .hello(hello)) == .permissionDenied)
            #expect(throws: (any Error).self) { _ = try pretender.status() }
        }
        // Neither has another user the gateway's rights.
        let stranger = try connect(supervisor, as: 65_532)
        #expect(try stranger.list().isEmpty)
        let owner = WireShow.with {
            $0.identifier = Self.name
            $0.ownerOnly = true
        }
        #expect(try error(stranger, .show(owner)) == .noSuchClient)
        guard case .clientInfo(let shown) = try gateway.ask(.show(owner)) else {
            throw TestFailure("its owner is not shown")
        }
        #expect(shown == .with { ($0.identifier, $0.uid) = (Self.name, Self.owner) })
        _ = client
        try supervisor.stop()
    }
}
