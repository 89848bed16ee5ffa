/// Who waits to be launched, in two lines: those that somebody waits for go first, and have room of their own, so that
/// a crowd of others, or others that hang, do not keep them.
///
/// Who changes its mind stays in line, and is passed over when its turn comes.
struct LaunchQueue: Sendable, Equatable {
    private var urgent = Line()
    private var others = Line()
    private(set) var urgentUnderWay = 0
    private(set) var othersUnderWay = 0

    private struct Line: Sendable, Equatable {
        private var clients: [ClientID] = []
        private var first = 0

        var isEmpty: Bool { first == clients.count }

        mutating func append(_ client: ClientID) { clients.append(client) }

        mutating func removeFirst() -> ClientID {
            defer {
                first += 1
                // As much is moved as was taken out before.
                if first > 64, first * 2 > clients.count {
                    clients.removeFirst(first)
                    first = 0
                }
            }
            return clients[first]
        }
    }

    mutating func append(_ client: ClientID, isUrgent: Bool) {
        if isUrgent { urgent.append(client) } else { others.append(client) }
    }

    /// The next one that may be launched now, whether it still wants to be or not.
    mutating func next(_ settings: Settings.Launches, isPressed: Bool) -> (client: ClientID, isUrgent: Bool)?
    {
        if !urgent.isEmpty, urgentUnderWay < max(1, settings.concurrent) {
            return (urgent.removeFirst(), true)
        }
        if !others.isEmpty, !isPressed, othersUnderWay < max(1, settings.concurrentInBackground) {
            return (others.removeFirst(), false)
        }
        return nil
    }

    mutating func begin(isUrgent: Bool) {
        if isUrgent { urgentUnderWay += 1 } else { othersUnderWay += 1 }
    }

    mutating func end(isUrgent: Bool) {
        if isUrgent { urgentUnderWay -= 1 } else { othersUnderWay -= 1 }
    }

    var hasOthers: Bool { !others.isEmpty }
}
