import LinuxSystem
import Testing

@Suite("Elapsed time")
struct ElapsedTimeTests {
    @Test("It goes on between processes, and from the last mark after a start of the machine")
    func goesOn() {
        let first = ElapsedTime(after: nil, boot: "a", uptime: 90)
        let mark = first.mark(uptime: 100)
        #expect(mark.elapsed == 10)
        let second = ElapsedTime(after: mark, boot: "a", uptime: 140)
        #expect(second.mark(uptime: 150).elapsed == 60)
        let third = ElapsedTime(after: second.mark(uptime: 160), boot: "b", uptime: 3)
        #expect(third.mark(uptime: 5) == .init(boot: "b", uptime: 5, elapsed: 75))
        #expect(ElapsedTime(after: third.mark(uptime: 5), boot: "b", uptime: 6).mark(uptime: 7).elapsed == 77)
    }
}
