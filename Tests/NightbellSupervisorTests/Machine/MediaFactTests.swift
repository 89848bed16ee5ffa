import EdgeTestSupport
import Foundation
import Glibc
import LinuxSystem
import NightbellCore
import NightbellSupervisor
import NightbellWire
import SwiftProtobuf
import Testing

/// A client with the mode `audio`, and the monitor of its user's session, which the test speaks for.
@Suite(.timeLimit(.minutes(40))) struct MediaFactTests {
    private static let name = "org.example.player"
    private let session: FakeMonitor
    private let supervisor: TestSupervisor

    init() throws {
        let session = try FakeMonitor()
        self.session = session
        supervisor = try TestSupervisor {
            $0.monitor = session.program
            $0.settings.budgets.mediaLapse = .milliseconds(200)
            $0.settings.budgets.mediaHold = .milliseconds(2_000)
        }
    }

    private func player() throws -> WireClient {
        let client = try WireClient(supervisor)
        try client.hello(Self.name, modes: [.voip, .audio])
        try session.start()
        #expect(try session.demand().sources == [.audio])
        return client
    }

    private func report(_ streaming: [pid_t], playing: [pid_t] = [], hasPipeWire: Bool = true) throws {
        try session.report(
            .audio(
                .with {
                    $0.streaming = streaming.map(UInt32.init)
                    $0.playing = playing.map(UInt32.init)
                    $0.isPipewireThere = hasPipeWire
                }))
        // It and the client have different connections.
        let isKnown = try eventually {
            try WireClient(supervisor).status().sources.contains {
                $0.name.hasPrefix("audio") && ($0.isAvailable || $0.reason.contains("own word"))
            }
        }
        #expect(isKnown)
    }

    private func isShown(_ words: String) throws -> Bool {
        try eventually { try WireClient(supervisor).show(Self.name).stateDetail.contains(words) }
    }

    @Test func aStreamOfItsProcessKeepsItAwakeUntilItEnds() throws {
        let client = try player()
        try report([1, getpid()])
        try client.enterBackground()
        #expect(try isShown("a stream of its in PipeWire"))
        #expect(try client.receiveIfAny(within: 500) == nil)
        #expect(try WireClient(supervisor).show(Self.name).mediaActive)
        try report([1])
        _ = try client.notice { if case .prepareToSuspend(let prepare) = $0 { prepare } else { nil } }
        try supervisor.stop()
    }

    /// Its players and recorders are processes of their own, as a rule.
    @Test func aStreamOfAChildCounts() throws {
        let child = try Child.echo()
        let client = try player()
        try report([child.pid])
        try client.enterBackground()
        #expect(try isShown("a stream of its"))
        // A process that has been found stays the client's for as long as it plays.
        child.end()
        child.reap()
        try report([child.pid, 1])
        #expect(try client.receiveIfAny(within: 400) == nil)
        try report([])
        _ = try client.notice { if case .prepareToSuspend(let prepare) = $0 { prepare } else { nil } }
        try supervisor.stop()
    }

    @Test func itsWordCountsOnlyWithoutPipeWire() throws {
        let client = try player()
        try report([])
        try client.enterBackground()
        guard case .error(let refusal) = try client.ask(.mediaActivity(.init())) else {
            throw TestFailure("its word counts")
        }
        #expect(refusal.code == .noStream)
        #expect(try !WireClient(supervisor).show(Self.name).mediaActive)
        try report([], hasPipeWire: false)
        let isSaid = try eventually {
            try WireClient(supervisor).status().sources.contains { $0.reason.contains("own word") }
        }
        #expect(isSaid)
        _ = try client.ask(.mediaActivity(.init()))
        #expect(try WireClient(supervisor).show(Self.name).mediaActive)
        try supervisor.stop()
    }

    /// Though it hangs, and nothing is asked of it.
    @Test func aMonitorThatHangsKeepsNothingAwakeForEver() throws {
        let session = try FakeMonitor()
        let supervisor = try TestSupervisor {
            $0.monitor = session.program
            $0.monitorSilence = .milliseconds(2_000)
            $0.settings.budgets.mediaHold = .milliseconds(500)
        }
        let client = try WireClient(supervisor)
        try client.hello(Self.name, modes: [.voip, .audio])
        try session.start()
        try session.demand()
        try session.report(
            .audio(
                .with {
                    $0.streaming = [UInt32(getpid())]
                    $0.isPipewireThere = true
                }))
        let isAwake = try eventually { try WireClient(supervisor).show(Self.name).mediaActive }
        #expect(isAwake)
        try client.enterBackground()
        kill(try session.pid(), SIGSTOP)
        _ = try client.notice { if case .prepareToSuspend(let prepare) = $0 { prepare } else { nil } }
        try session.waitForEnd()
        try session.start()
        try supervisor.stop()
    }

    @Test func aSessionTooManyIsSaidAndItsWordCounts() throws {
        let session = try FakeMonitor()
        let supervisor = try TestSupervisor {
            $0.monitor = session.program
            $0.observedSessions = 0
        }
        let client = try WireClient(supervisor)
        try client.hello(Self.name, modes: [.voip, .audio])
        let isSaid = try eventually {
            try WireClient(supervisor).status().sources.contains {
                $0.name.hasPrefix("audio") && !$0.isAvailable && $0.reason.contains("too many sessions")
            }
        }
        #expect(isSaid && !session.isStarted(within: 0))
        _ = try client.ask(.mediaActivity(.init()))
        #expect(try WireClient(supervisor).show(Self.name).mediaActive)
        try supervisor.stop()
    }

    /// The state of before holds until its monitor has been replaced, and not for ever.
    @Test func aMonitorThatDiesIsNoSilence() throws {
        let client = try player()
        try report([getpid()])
        try client.enterBackground()
        #expect(try isShown("a stream of its"))
        for _ in 0..<2 {
            kill(try session.pid(), SIGKILL)
            try session.start()
            try session.demand()
            #expect(try WireClient(supervisor).show(Self.name).mediaActive)
            try report([getpid()])
        }
        #expect(try client.receiveIfAny(within: 300) == nil)
        session.end()
        try session.start()
        _ = try client.notice { if case .prepareToSuspend(let prepare) = $0 { prepare } else { nil } }
        try supervisor.stop()
    }

    /// As if the monitor had died: the state of before holds for `budgets.mediaHold`, and the client's word
    /// counts again.
    @Test func anOverloadedSessionIsNoSilence() throws {
        let client = try player()
        try report([getpid()])
        try client.enterBackground()
        #expect(try isShown("a stream of its"))
        let start = BootClock.now()
        try session.report(
            .source(
                .with {
                    $0.source = .audio; $0.isTemporary = true
                }))
        _ = try client.notice { if case .prepareToSuspend(let prepare) = $0 { prepare } else { nil } }
        #expect(BootClock.now() - start >= 2_000_000_000)
        try report([getpid()])
        #expect(try WireClient(supervisor).show(Self.name).mediaActive)
        try supervisor.stop()
    }

    @Test func aMonitorThatEndsAgainAndAgainIsStartedAgain() throws {
        let client = try player()
        for _ in 0..<5 {
            session.end()
            try session.start()
            try session.demand()
        }
        try report([getpid()])
        #expect(try WireClient(supervisor).show(Self.name).mediaActive)
        _ = client
        try supervisor.stop()
    }

    @Test func mediaWakesNoSleeper() throws {
        let client = try player()
        try report([])
        try client.goToSleep()
        try WireClient(supervisor).wait(for: Self.name, toBe: .suspended, supervisor)
        try report([getpid()])
        #expect(try client.receiveIfAny(within: 300) == nil)
        #expect(try WireClient(supervisor).show(Self.name).state == .suspended)
        try supervisor.stop()
    }

    @Test func withoutTheModeNothingIsStarted() throws {
        let client = try WireClient(supervisor, "org.example.phone")
        _ = try client.status()
        #expect(!session.isStarted(within: 0))
        guard case .error(let error) = try client.ask(.mediaActivity(.init())) else {
            throw TestFailure("not refused")
        }
        #expect(error.code == .modeRequired)
        try supervisor.stop()
    }
}
