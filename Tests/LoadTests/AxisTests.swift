import LoadTester
import Testing

@Suite("Axes of pictures")
struct AxisTests {
    @Test("A linear axis begins at zero and ends at a round number")
    func linear() {
        let axis = Axis(.linear, [120, 870])
        #expect(axis.ticks.first?.value == 0)
        #expect(axis.ticks.last?.value == 1_000)
        #expect(axis.place(0) == 0)
        #expect(axis.place(1_000) == 1)
        #expect(axis.place(500) == 0.5)
    }

    @Test("A logarithmic axis has a line at each power of ten")
    func logarithmic() {
        let axis = Axis(.logarithmic, [30, 4_000])
        #expect(axis.ticks.map(\.label) == ["10", "100", "1000", "10 k"])
        #expect(abs(axis.place(100) - 1.0 / 3) < 1e-9)
        // Nothing below is drawn outside the picture.
        #expect(axis.place(1) == 0)
        #expect(axis.place(0) == 0)
    }

    @Test("On the axis of percentiles each nine takes the same space")
    func nines() {
        let axis = Axis(.nines, [0, 0.5, 0.995])
        #expect(axis.ticks.map(\.label) == ["0 %", "90 %", "99 %", "99.9 %"])
        #expect(abs(axis.place(0.9) - 1.0 / 3) < 1e-9)
        #expect(abs(axis.place(0.99) - 2.0 / 3) < 1e-9)
    }

    @Test("No values, or all the same, are no trouble")
    func degenerate() {
        for scale in [Axis.Scale.linear, .logarithmic, .nines] {
            for values in [[], [0.0], [0.7, 0.7]] {
                let axis = Axis(scale, values)
                #expect((2...20).contains(axis.ticks.count))
                #expect(values.allSatisfy { (0...1).contains(axis.place($0)) })
            }
        }
    }
}
