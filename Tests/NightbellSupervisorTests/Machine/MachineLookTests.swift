import EdgeTestSupport
import Foundation
import Glibc
import NightbellCore
import NightbellSupervisor
import NightbellWire
import Synchronization
import Testing

@Suite struct MachineLookTests {
    /// The kernel's format; a file that is missing, as where PSI is off, tells of no shortage.
    @Test(arguments: [
        ("cpu", 59.9, false), ("cpu", 60, true), ("memory", 9.99, false), ("memory", 10, true),
        ("io", 100, false),
    ]) func processesThatHaveToWaitAreAShortage(_ file: String, _ share: Double, _ isShort: Bool) throws {
        let directory = try TemporaryDirectory()
        #expect(!look(directory).isShort)
        try report(share, in: file, directory)
        #expect(look(directory).isShort == isShort)
    }

    private func look(_ directory: TemporaryDirectory) -> MachineLook {
        MachineLook(processorLimit: 60, memoryLimit: 10, directory: directory.path)
    }

    private func report(_ share: Double, in file: String, _ directory: TemporaryDirectory) throws {
        let text = """
            some avg10=\(share) avg60=0.00 avg300=0.00 total=1
            full avg10=0.00 avg60=99.00 avg300=0.00 total=1

            """
        try text.write(toFile: directory.file(file), atomically: true, encoding: .utf8)
    }

    /// A supervisor learns of a shortage from the kernel's file, holds fetches up, and tells of both.
    @Test func aShortageHoldsFetchesUp() throws {
        let directory = try TemporaryDirectory()
        try report(90, in: "memory", directory)
        let slept = Mutex(Duration.zero)
        let supervisor = try TestSupervisor { configuration in
            configuration.pressure = (directory.path, .milliseconds(20))
            configuration.settings.fetch.memoryPressure = 50
            configuration.pretendedSleep = { slept.withLock { $0 } }
        }
        let watcher = try WireClient(supervisor)
        guard case .done = try watcher.ask(.watch(WireWatch())) else { throw TestFailure("cannot watch") }
        let client = try WireClient(supervisor, "org.example.mail", modes: [.fetch])
        #expect(try client.ask(.setMinimumFetchInterval(WireSetMinimumFetchInterval())) == .done(WireDone()))
        try client.goToSleep()
        try client.wait(for: "org.example.mail", toBe: .suspended, supervisor)
        try watcher.machine("little memory or processor time")
        slept.withLock { $0 = .seconds(2 * 86_400) }
        let fetch = try watcher.show("org.example.mail").fetch
        #expect(fetch.obstacle == .shortage && !fetch.isFetching)
        try report(0, in: "memory", directory)
        #expect(try client.wake().fetchBudgetMs > 0)
        try watcher.machine("enough memory and time")
        try supervisor.stop()
    }

    /// Days of learning at the edge: local time, and openings of the client.
    @Test func aSupervisorLearnsWhenAClientIsOpened() throws {
        let slept = Mutex(Duration.zero)
        let supervisor = try TestSupervisor { $0.pretendedSleep = { slept.withLock { $0 } } }
        let client = try WireClient(supervisor, "org.example.mail", modes: [.fetch])
        #expect(try client.ask(.setMinimumFetchInterval(WireSetMinimumFetchInterval())) == .done(WireDone()))
        for day in 0..<4 {
            slept.withLock { $0 = .seconds(day * 86_400) }
            try client.enterBackground()
            try client.send(.enterForeground(WireEnterForeground()))
            // Midnight may come meanwhile.
            #expect((day...day + 1).contains(Int(try client.show("org.example.mail").fetch.observedDays)))
        }
        slept.withLock { $0 = .seconds(4 * 86_400) }
        let hours = try client.show("org.example.mail").fetch.usualHours
        var seconds = time(nil)
        var local = tm()
        localtime_r(&seconds, &local)
        // Mornings of a weekend that was never seen may be later.
        #expect(hours.contains(UInt32(local.tm_hour)) && hours.count <= 4, "\(hours)")
        try supervisor.stop()
    }

    @Test func aChangeOfTheTimeZoneIsNoticed() async {
        // The time zone is the whole process's.
        await #expect(processExitsWith: .success) {
            func offset() -> Int64 { MachineLook(processorLimit: 101, memoryLimit: 101).wallClockOffset }
            setenv("TZ", "UTC0", 1)
            let before = offset()
            setenv("TZ", "EAST-3", 1)
            let moved = offset() - before
            #expect(abs(moved - 3 * 3_600_000_000_000) < 60_000_000_000)
        }
    }
}
