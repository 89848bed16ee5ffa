import Testing

@testable import NightbellCore

/// Each socket has its own terms, however many different ones there are.
@Suite struct TermsTableTests {
    private func terms(_ number: Int) -> PingTerms {
        let latest = Duration.seconds(60) + .milliseconds(number)
        return PingTerms(earliest: latest * 4 / 5, latest: latest, answerWithin: .seconds(10))
    }

    @Test func seventyThousandOneAfterTheOther() {
        var book = PingScheduler(Settings())
        let now = Instant(nanoseconds: 0)
        var wrong = 0
        book.add(0, 0, at: now)
        for number in 0..<70_000 {
            book.activate(0)
            book.begin(0, terms(number), isAwaitingAnswer: false, at: now)
            if book.window(0, at: now)?.latest != now + terms(number).latest { wrong += 1 }
            book.end(0)
        }
        #expect(wrong == 0 && book.differentTerms == 0)
    }

    @Test func seventyThousandAtOnce() {
        var book = PingScheduler(Settings())
        let now = Instant(nanoseconds: 0)
        let slots = UInt32(0)..<70_000
        for slot in slots {
            book.add(slot, 0, at: now)
            book.activate(slot)
            book.begin(slot, terms(Int(slot)), isAwaitingAnswer: false, at: now)
        }
        #expect(book.differentTerms == 65_534)
        func wrong(_ slots: Range<UInt32>) -> Int {
            slots.count { book.window($0, at: now)?.latest != now + terms(Int($0)).latest }
        }
        #expect(wrong(slots) == 0)
        // The last sockets get no number; later ones get numbers that were freed.
        book.end(69_999)
        for slot in UInt32(0)..<1_000 { book.remove(slot) }
        #expect(book.differentTerms == 64_534 && wrong(1_000..<69_999) == 0)
        for slot in UInt32(0)..<1_000 {
            book.add(slot, 0, at: now)
            book.activate(slot)
            book.begin(slot, terms(Int(slot)), isAwaitingAnswer: false, at: now)
        }
        #expect(book.differentTerms == 65_534 && wrong(0..<69_999) == 0)
        for slot in slots { book.remove(slot) }
        #expect(book.differentTerms == 0)
    }

    @Test func equalTermsHaveOneNumberForAsLongAsOneIsLeft() {
        var table = TermsTable()
        let first = table.assign(terms(1), for: 0)
        #expect(table.assign(terms(1), for: 1) == first && table.assign(terms(2), for: 2) != first)
        table.putBack(first, of: 0)
        #expect(table.terms(first, of: 1) == terms(1) && table.count == 2)
        table.putBack(first, of: 1)
        #expect(table.count == 1 && table.assign(terms(3), for: 3) == first)
    }

    @Test func numbersDependOnTheCallsAlone() {
        func course() -> [UInt16] {
            var table = TermsTable()
            var numbers: [UInt16] = []
            for number in 0..<1_000 {
                numbers.append(table.assign(terms(number % 300), for: UInt32(number)))
                if number % 3 == 0 { table.putBack(numbers[number / 2], of: UInt32(number / 2)) }
            }
            return numbers
        }
        #expect(course() == course())
    }

    @Test func aSocketTakesNoMoreRoomThanItDid() {
        #expect(MemoryLayout<Offload>.stride <= 40)
    }
}
