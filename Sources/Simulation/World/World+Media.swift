import NightbellCore

/// The media of users' sessions, and what must follow from it.
extension World {
    /// Now and then a monitor reports the media of a user, or nothing is known any more.
    mutating func observeMedia() {
        guard parameters.media > 0, random.below(32) < parameters.media, let someone = random.pick(clients)
        else { return }
        let user = someone.user
        var named = clients.filter { $0.user == user && random.once(in: 2) }.map(\.id)
        // Another user's client, or one that is gone, is none of that session.
        if random.once(in: 4), let other = random.pick(clients) { named.append(other.id) }
        if random.once(in: 8) { named.append(ClientID(rawValue: random.next())) }
        let fact: Knowledge<MediaFact> =
            switch random.below(8) {
            case 0: .unknown
            case 1: .unavailable
            case 2: .known(MediaFact(streaming: nil, playing: named))
            case 3: .known(MediaFact(streaming: [], playing: named))
            default: .known(MediaFact(streaming: named))
            }
        events.insert(.fact(.media(of: user, fact)), at: 0)
    }

    mutating func foreseeMedia(of user: UserID, _ fact: Knowledge<MediaFact>) {
        isAboutMedia = true
        let streams = fact.value?.streaming
        machine.hasStreams[user] = streams != nil
        let named = streams ?? fact.value?.playing ?? []
        for client in clients where client.user == user {
            let isNamed = hasAudio(client) && named.contains(client.id)
            if isNamed || core.isReportedMedia(of: client.id) { noteTime(client) }
            // Of others the report says nothing new.
            guard isNamed || client.hasReportedMedia else { continue }
            client.hasReportedMedia = hasAudio(client) && (isNamed || streams == nil)
            guard hasAudio(client) else { continue }
            client.isTouched = true
            if isNamed {
                client.mediaUntil = .distantFuture
                coverage.streams += 1
            } else {
                let budgets = settings.budgets
                let end = now + (streams == nil ? budgets.mediaHold : budgets.mediaLapse)
                client.mediaUntil = min(client.mediaUntil, end)
            }
        }
    }

    /// Whether media of the client's could keep it awake, once it is.
    private func hasAudio(_ client: SimulatedClient) -> Bool {
        client.registration.modes.contains(.audio) && client.hasSpoken && !client.isBeingEnded
    }

    /// A claim counts only where nothing better is known.
    func foreseeClaim(of client: SimulatedClient) {
        guard machine.hasStreams[client.user] != true else { return }
        client.mediaUntil = max(client.mediaUntil, now + settings.budgets.mediaLapse)
        client.clock = nil
    }

    /// The next supervisor goes by what the one before knew, for a while.
    mutating func believeMedia(_ client: SimulatedClient) {
        let known = min(client.mediaUntil, now + settings.budgets.mediaHold)
        let until = core.mediaUntil(of: client.id) ?? Instant(nanoseconds: .min)
        defer { client.mediaUntil = until }
        client.hasReportedMedia = core.mediaUntil(of: client.id) != nil
        guard hasAudio(client) else { return }
        require(.media, known <= now || until >= known, "the media of \(client.name) is forgotten")
        require(
            .media, until <= now + settings.budgets.mediaHold, "the media of \(client.name) never ends")
    }

    mutating func checkMedia() {
        guard !core.isStopping else { return }
        var users: Set<UserID> = []
        for client in clients {
            guard hasAudio(client) else { continue }
            if client.state != .suspended { users.insert(client.user) }
            let until = core.mediaUntil(of: client.id) ?? Instant(nanoseconds: .min)
            let isRight = until == client.mediaUntil || max(until, client.mediaUntil) <= now
            require(.media, isRight, "the media of \(client.name) counts as playing for another time")
        }
        require(.media, Set(core.mediaUsers) == users, "the media of other users is needed")
    }
}
