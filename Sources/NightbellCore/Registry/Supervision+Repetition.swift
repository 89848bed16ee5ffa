/// What a supervisor that is gone has done for a client, as far as the client may not know of it.
struct InheritedRequests: Sendable, Equatable {
    struct Place: Sendable, Hashable {
        var request: UInt64
        var index: UInt16
    }

    /// Requests up to this number were taken in.
    var last: UInt64
    var adoptions: [Place: SocketToken] = [:]
    /// Requests that this supervisor has taken in since, and answered.
    var answered: Set<UInt64> = []
}

/// Requests that a client makes again, because whoever it had asked may be gone without having answered.
extension Supervision {
    /// Notes the number of a request. True: it is made again and was answered by this very supervisor, so there is
    /// nothing to be done, and no second answer.
    mutating func isDuplicate(_ key: RequestKey, of client: ClientID) -> Bool {
        guard key.request != 0 else { return false }
        clients[client.id].lastRequest = max(clients[client.id].lastRequest, key.request)
        guard !inherited.isEmpty, !mutated(.repeatsRequests) else { return false }
        // The one that is gone may have read a request, and left a later one unread: the order says nothing.
        let isNew = inherited[client]?.answered.insert(key.request).inserted ?? true
        return key.isRepeated && !isNew
    }

    /// Whether a supervisor that is gone has carried this request out.
    func wasTakenIn(_ key: RequestKey, of client: ClientID) -> Bool {
        guard key.isRepeated, let inherited = inherited[client], !mutated(.repeatsRequests) else {
            return false
        }
        return key.request <= inherited.last
    }

    /// Whether one may have, also if that is not written down.
    func wasInherited(_ key: RequestKey, of client: ClientID) -> Bool {
        key.isRepeated && inherited[client] != nil && !mutated(.repeatsRequests)
    }

    /// What was not adopted then may be now; asked once more, it is the same.
    mutating func noteAdoption(_ token: SocketToken, at index: Int, _ key: RequestKey, _ client: ClientID) {
        guard wasTakenIn(key, of: client), let index = UInt16(exactly: index) else { return }
        inherited[client]?.adoptions[.init(request: key.request, index: index)] = token
    }

    /// The token under which a supervisor that is gone has adopted the socket at this place of the request.
    func adoption(of index: Int, _ key: RequestKey, _ client: ClientID) -> SocketToken? {
        guard key.isRepeated, !mutated(.repeatsRequests), let index = UInt16(exactly: index) else {
            return nil
        }
        let place = InheritedRequests.Place(request: key.request, index: index)
        guard let token = inherited[client]?.adoptions[place], owns(client, token) else {
            return nil
        }
        return token
    }
}
