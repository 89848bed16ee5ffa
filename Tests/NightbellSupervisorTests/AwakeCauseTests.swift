import EdgeTestSupport
import Glibc
import NightbellCore
import NightbellSupervisor
import NightbellWire
import SwiftProtobuf
import Testing

/// Why a client runs, as the supervisor tells it: by kind, beside the words for people.
@Suite(.timeLimit(.minutes(40))) struct AwakeCauseTests {
    private static let name = "org.example.phone"

    enum Situation: CaseIterable {
        case inactive, active, entering, task, media, fetch, push, wake, lingering, wakeWithTask, suspending
        case suspended, terminating

        var causes: [WireAwakeCause] {
            switch self {
            case .inactive, .entering: [.starting]
            case .active: [.foreground]
            case .task: [.assertion]
            case .media: [.media]
            case .fetch: [.traffic, .fetch]
            case .push: [.traffic, .push]
            case .wake: [.traffic]
            case .lingering: [.lingering]
            case .wakeWithTask: [.traffic, .assertion]
            case .suspending, .terminating: [.ending]
            case .suspended: []
            }
        }

        var words: String {
            switch self {
            case .inactive, .active, .suspending, .suspended, .terminating: ""
            case .entering: "entering the background"
            case .task: "background tasks"
            case .media: "media: its own word, without PipeWire"
            case .fetch: "handling a wake, a fetch"
            case .push: "handling a wake, a push"
            case .wake: "handling a wake"
            case .lingering: "lingering"
            case .wakeWithTask: "handling a wake, background tasks"
            }
        }
    }

    private func supervisor(
        _ configure: (inout SupervisorConfiguration) -> Void = { _ in }
    ) throws -> TestSupervisor {
        try TestSupervisor {
            // A situation lasts until it has been looked at.
            let long = Duration.seconds(60)
            $0.settings.budgets.enteringBackground = long
            $0.settings.budgets.prepareToSuspend = long
            $0.settings.budgets.wake = long
            $0.settings.budgets.backgroundTasks = long
            $0.settings.budgets.mediaLapse = long
            $0.settings.wakes.linger = long
            $0.settings.launches.budget = long
            $0.settings.launches.retry = long
            configure(&$0)
        }
    }

    private func expect(_ causes: [WireAwakeCause], _ words: String, _ supervisor: TestSupervisor) throws {
        var info = WireClientInfo()
        let isSo = try eventually {
            guard let shown = try supervisor.show(Self.name) else { return false }
            info = shown
            return info.awakeCauses == causes && info.stateDetail == words
        }
        #expect(isSo, "\(info.awakeCauses) \(info.state) \(info.stateDetail)")
        #expect(try WireClient(supervisor).list().map(\.awakeCauses) == [causes])
    }

    private func done(_ body: WireClientMessage.OneOf_Body, _ client: WireClient) throws {
        if case .error(let error) = try client.ask(body) { throw error }
    }

    @Test("Each situation has its kind, and its words", arguments: Situation.allCases)
    func situations(situation: Situation) throws {
        let supervisor = try supervisor()
        let client = try WireClient(supervisor, Self.name, modes: [.voip, .audio, .fetch])
        let other = try WireClient(supervisor)
        let task = WireBeginBackgroundTask.with { $0.name = "upload" }
        switch situation {
        case .inactive: break
        case .active: try done(.enterForeground(.init()), client)
        case .entering: try done(.enterBackground(.init()), client)
        case .task:
            try done(.beginBackgroundTask(task), client)
            try client.enterBackground()
        case .media:
            try done(.mediaActivity(.init()), client)
            try client.enterBackground()
        case .fetch:
            try done(.setMinimumFetchInterval(.with { $0.intervalMs = 3_600_000 }), client)
            try client.goToSleep()
            let fetch = WireSimulate.with {
                $0.identifier = Self.name
                $0.event = .fetch
            }
            try done(.simulate(fetch), other)
        case .push:
            let pushes = WireObserve.with {
                $0.name = "push"
                $0.pushes = .init()
            }
            try done(.observe(pushes), client)
            try client.goToSleep()
            let waiting = WirePushesWaiting.with {
                $0.identifier = Self.name
                $0.uid = geteuid()
                $0.number = 1
                $0.urgency = .high
            }
            try done(.pushesWaiting(waiting), other)
        case .wake, .lingering, .wakeWithTask:
            try client.goToSleep()
            try done(.wakeClient(.with { $0.identifier = Self.name }), other)
            let wake = try client.wake()
            if situation == .wakeWithTask { try done(.beginBackgroundTask(task), client) }
            if situation == .lingering { try client.finish(wake) }
        case .suspending:
            try client.enterBackground()
            _ = try client.prepare()
        case .suspended:
            try client.goToSleep()
            try client.wait(for: Self.name, toBe: .suspended, supervisor)
        case .terminating:
            // It is asked to end, and does not.
            try done(.enterForeground(.init()), client)
            try done(.quitClient(.with { $0.identifier = Self.name }), other)
        }
        try expect(situation.causes, situation.words, supervisor)
        withExtendedLifetime(client) {}
    }

    @Test func aLaunchedClientIsStarting() throws {
        let supervisor = try supervisor { $0.settings.wakes.linger = .milliseconds(20) }
        let actor = try TestClient(Self.name, of: supervisor)
        let first = try actor.start()
        kill(first.pid, SIGKILL)
        try supervisor.reaches(.dormant, Self.name)
        #expect(try supervisor.show(Self.name)?.awakeCauses == [])
        try supervisor.administrate(.launchClient(.with { $0.identifier = Self.name }))
        try supervisor.reaches(.launching, Self.name)
        #expect(try supervisor.show(Self.name)?.awakeCauses == [.starting])
        let second = try actor.returns()
        try expect([.starting], "setting up", supervisor)
        try supervisor.stop()
        withExtendedLifetime((first, second)) {}
    }
}
