/// The previous supervisor's work for a client, as far as the client may not know of it.
struct InheritedRequests: Sendable, Equatable {
    struct Place: Sendable, Hashable {
        var request: UInt64
        var index: UInt16
    }

    /// Requests up to this number were processed.
    var last: UInt64
    var adoptions: [Place: SocketToken] = [:]
    /// Requests that this supervisor has processed since, and answered.
    var answered: Set<UInt64> = []
}

/// Requests that a client repeats, because the previous supervisor may have ended without answering them.
extension Supervision {
    /// Notes the number of a request. True: it is a repetition of one that this same supervisor has answered,
    /// and must be ignored without a second answer.
    mutating func isDuplicate(_ key: RequestKey, of client: ClientID) -> Bool {
        guard key.request != 0 else { return false }
        clients[client.id].lastRequest = max(clients[client.id].lastRequest, key.request)
        guard !inherited.isEmpty, !mutated(.repeatsRequests) else { return false }
        // The previous supervisor may have left requests unread, so the numbers' order proves nothing.
        let isNew = inherited[client]?.answered.insert(key.request).inserted ?? true
        return key.isRepeated && !isNew
    }

    /// Whether the previous supervisor has carried this request out.
    func wasTakenIn(_ key: RequestKey, of client: ClientID) -> Bool {
        guard key.isRepeated, let inherited = inherited[client], !mutated(.repeatsRequests) else {
            return false
        }
        return key.request <= inherited.last
    }

    /// Whether the previous supervisor may have carried this request out, even if that was not recorded.
    func wasInherited(_ key: RequestKey, of client: ClientID) -> Bool {
        key.isRepeated && inherited[client] != nil && !mutated(.repeatsRequests)
    }

    /// A socket refused by the previous supervisor may be adopted now. Notes its token, so that a further
    /// repetition gets the same one.
    mutating func recordAdoption(_ token: SocketToken, at index: Int, _ key: RequestKey, _ client: ClientID) {
        guard wasTakenIn(key, of: client), let index = UInt16(exactly: index) else { return }
        inherited[client]?.adoptions[.init(request: key.request, index: index)] = token
    }

    /// The token under which the previous supervisor has adopted the socket at this index of the request.
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
