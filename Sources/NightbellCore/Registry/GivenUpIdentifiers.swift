/// The identifiers that the clients of one uid have given up, in that order, except that those of clients that
/// were quit come last: a quit that is forgotten is a client that is launched again.
///
/// The caller that takes one out must compare its number: its place may hold another identifier since, or it
/// may be in use again, or have been given up once more.
struct GivenUpIdentifiers: Sendable, Equatable {
    struct Entry: Sendable, Equatable {
        /// Index in `Supervision.owners`.
        let place: UInt32
        /// The number of identifiers given up until then, including this one.
        let number: UInt64
    }

    private var others = Line()
    private var quit = Line()

    var count: Int { others.count + quit.count }

    mutating func append(_ entry: Entry, isQuit: Bool) {
        if isQuit { quit.append(entry) } else { others.append(entry) }
    }

    mutating func takeFirst() -> Entry? { others.takeFirst() ?? quit.takeFirst() }

    mutating func removeAll(where isObsolete: (Entry) -> Bool) {
        others.removeAll(where: isObsolete)
        quit.removeAll(where: isObsolete)
    }

    /// First in, first out.
    private struct Line: Sendable, Equatable {
        private var entries: [Entry] = []
        /// The number of entries taken out at the front.
        private var taken = 0

        var count: Int { entries.count - taken }

        mutating func append(_ entry: Entry) { entries.append(entry) }

        mutating func takeFirst() -> Entry? {
            guard taken < entries.count else { return nil }
            defer {
                taken += 1
                if taken > entries.count / 2 {
                    entries.removeFirst(taken)
                    taken = 0
                }
            }
            return entries[taken]
        }

        mutating func removeAll(where isObsolete: (Entry) -> Bool) {
            entries.removeFirst(taken)
            taken = 0
            entries.removeAll(where: isObsolete)
        }
    }
}
