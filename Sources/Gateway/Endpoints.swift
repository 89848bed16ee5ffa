import DequeModule
import HTTPTypes
import Hummingbird
import Identifiers
import NIOCore
import Nightbell
import Presentation
import PushService
import ServiceLifecycle
import StatusReports

typealias Context = BasicRequestContext

/// Everything that a peer can ask for.
struct Endpoints: Sendable {
    let link: SupervisorLink
    let status: RecentAnswer<SupervisorStatus>
    /// Sorted by their identifiers.
    let clients: RecentAnswer<[ClientInfo]>
    let hub: EventHub
    let tokens: TokenStore
    let metrics: MetricsPage
    let limits: Limits
    let strangers: StrangerLimits
    /// nil: there is no push service.
    let pushes: PushEndpoints?

    typealias Handler = @Sendable (Request, Context) async throws -> Response

    var router: Router<Context> {
        let router = Router(context: Context.self, options: [.autoGenerateHeadEndpoints])
        router.add(middleware: RequestMetrics(metrics: metrics.requests))
        router.add(middleware: ResponseRules(strangers: strangers))
        for asset in Asset.all { add(router, asset.path, .get) { _, _ in asset.response } }
        add(router, "/healthz", .get, for: .health) { _, _ in .text("ok\n") }
        add(router, "/readyz", .get, for: .health) { _, _ in try readiness() }
        add(router, "/metrics", .get, .read) { request, _ in try await metrics(request) }
        add(router, "/v1/openapi.json", .get) { _, _ in OpenAPI.response }
        add(router, "/v1/status", .get, .read) { _, _ in .json(try await status.get().value.json) }
        add(router, "/v1/clients", .get, .read) { request, _ in try await list(request) }
        add(router, "/v1/clients/:id", .get, .read) { _, context in
            let identifier = try identifier(context)
            let info = try await link.ask { (administration) throws(NightbellError) in
                try administration.show(identifier)
            }
            return .json(info.json(detailed: true))
        }
        add(router, "/v1/clients/:id/wake", .post, .wake) { request, context in
            try await act(request, context) { (administration, name) throws(NightbellError) in
                try administration.wake(name)
            }
        }
        add(router, "/v1/clients/:id/suspend", .post, .wake) { request, context in
            try await act(request, context) { (administration, name) throws(NightbellError) in
                try administration.suspend(name)
            }
        }
        add(router, "/v1/clients/:id/quit", .post, .wake) { request, context in
            let name = try identifier(context)
            try await link.ask { (administration) throws(NightbellError) in _ = try administration.show(name)
            }
            // It was known a moment ago: if it is not any more when the answer was lost, it has been quit.
            return try await act(
                request, context, isFree: true, whenDone: { $0.code == .noSuchClient ? () : nil }
            ) { (administration, name) throws(NightbellError) in
                try administration.quit(name)
            }
        }
        add(router, "/v1/clients/:id/launch", .post, .wake) { request, context in
            try await act(request, context) { (administration, name) throws(NightbellError) in
                try administration.launch(name)
            }
        }
        add(router, "/v1/events", .get, .read) { request, _ in try events(request) }
        if let pushes { add(pushes, to: router) }
        return router
    }

    private static let methods: [HTTPRequest.Method] =
        [.get, .head, .post, .put, .patch, .delete, .options, .trace, .connect]
        + ["QUERY"].compactMap { HTTPRequest.Method($0) }

    /// Adds an endpoint that has one method, and refuses the others by name.
    private func add(
        _ router: Router<Context>, _ path: RouterPath, _ method: HTTPRequest.Method, _ scope: Scope? = nil,
        for kind: StrangerLimits.Kind = .page, _ handler: @escaping Handler
    ) {
        let (tokens, strangers) = (tokens, strangers)
        router.on(path, method: method) { request, context in
            if let scope {
                try authorize(request, tokens, scope)
                return try await handler(request, context)
            }
            let mayGoOn = await strangers.wait(kind)
            var response: Response
            do {
                response = try await handler(request, context)
            } catch let error as APIError {
                response = error.response
            }
            if !mayGoOn { response.headers[.connection] = "close" }
            return response
        }
        let allowed: [HTTPRequest.Method] = method == .get ? [.get, .head] : [method]
        for other in Self.methods where !allowed.contains(other) {
            router.on(path, method: other) { _, _ -> Response in throw APIError.methodNotAllowed(allowed) }
        }
    }

    private func add(_ pushes: PushEndpoints, to router: Router<Context>) {
        add(router, "/v1/clients/:id/push", .post, .push) { request, context in
            let name = try identifier(context)
            let user = try await link.ask { (administration) throws(NightbellError) in
                try administration.owner(of: name)
            }
            return try await pushes.leave(request, at: .client(Recipient(user: user, client: name)))
        }
        let path: RouterPath = "/push/:token"
        router.on(path, method: .get) { _, context in try pushes.discover(context) }
        router.on(path, method: .post) { request, context in try await pushes.leave(request, context) }
        for other in Self.methods where ![.get, .head, .post].contains(other) {
            router.on(path, method: other) { _, _ -> Response in
                throw APIError.methodNotAllowed([.get, .head, .post])
            }
        }
    }

    private func authorize(_ request: Request, _ tokens: TokenStore, _ scope: Scope) throws(APIError) {
        guard let hash = presentedHash(request), let scopes = tokens.scopes(of: hash) else {
            throw .unauthenticated
        }
        guard scopes.contains(scope) else { throw .scopeRequired(scope) }
    }

    private func presentedHash(_ request: Request) -> [UInt8]? {
        guard let value = request.headers[.authorization] else { return nil }
        let parts = value.split(separator: " ", maxSplits: 1)
        guard parts.count == 2, parts[0].lowercased() == "bearer" else { return nil }
        return Token.hash(of: parts[1])
    }

    // MARK: Clients

    /// Identifiers as the supervisor has them: others need not be asked for.
    private func identifier(_ context: Context) throws(APIError) -> String {
        guard let text = context.parameters.get("id"), IdentifierRule.permits(text) else {
            throw .noSuchClient
        }
        return text
    }

    private func act(
        _ request: Request, _ context: Context, isFree: Bool = false,
        whenDone: @escaping @Sendable (NightbellError) -> Void? = { _ in nil },
        _ command: @escaping @Sendable (inout Administration, String) throws(NightbellError) -> Void
    ) async throws -> Response {
        let name = try identifier(context)
        // There is nothing to say in it.
        var request = request
        _ = try await request.collectBody(upTo: limits.bodyBytes)
        try await link.ask(isFree: isFree, whenDone: whenDone) { (administration) throws(NightbellError) in
            try command(&administration, name)
        }
        return Response(status: .noContent)
    }

    private func list(_ request: Request) async throws -> Response {
        let query = try ListQuery(request)
        return .json(query.page(of: try await clients.get()))
    }

    // MARK: Health

    /// Whether the supervisor's events arrive.
    private func readiness() throws(APIError) -> Response {
        guard hub.isConnected else { throw .unavailable("there is no connection to the supervisor") }
        return .text("ready\n")
    }

    private func metrics(_ request: Request) async throws -> Response {
        let withClients = request.uri.queryParameters["clients"] == "1"
        let status = try? await status.get().value
        let clients = try? await clients.get().value
        return .text(
            metrics.text(status, clients, withClients: withClients),
            type: "text/plain; version=0.0.4; charset=utf-8")
    }

    // MARK: Events

    private func events(_ request: Request) throws(APIError) -> Response {
        let identifier = request.uri.queryParameters["identifier"].map(String.init)
        if let identifier, !IdentifierRule.permits(identifier) {
            throw .invalid("identifier: expected \(IdentifierRule.text)")
        }
        var after: UInt64?
        if let text = request.headers[.lastEventID] ?? request.uri.queryParameters["after"].map(String.init) {
            guard let number = UInt64(text) else { throw .invalid("after: expected the id of an event") }
            after = number
        }
        // Otherwise the refusal would come after the header.
        guard hub.streams < limits.streams else { throw .tooManyStreams }
        let stream = EventStream(
            hub: hub, tokens: tokens, tokenHash: presentedHash(request) ?? [], identifier: identifier,
            after: after)
        return Response(
            status: .ok, headers: [.contentType: "text/event-stream", .xAccelBuffering: "no"],
            body: ResponseBody { writer in try await stream.run(&writer) })
    }
}

/// One peer that follows events.
private struct EventStream: Sendable {
    let hub: EventHub
    let tokens: TokenStore
    let tokenHash: [UInt8]
    let identifier: String?
    let after: UInt64?

    /// Events are gathered for this long before they are written: a busy stream costs few writes.
    private static let gathering: Duration = .milliseconds(100)

    @concurrent func run(_ writer: inout any ResponseBodyWriter) async throws {
        let subscription = try hub.subscribe(to: identifier, after: after)
        defer { hub.end(subscription) }
        // The server ends when all its connections have.
        try await withGracefulShutdownHandler {
            try await write(subscription, &writer)
        } onGracefulShutdown: {
            subscription.finish()
        }
        try await writer.finish(nil)
    }

    @concurrent private func write(
        _ subscription: EventHub.Subscription, _ writer: inout any ResponseBodyWriter
    ) async throws {
        var next = ByteBuffer(string: "retry: 1000\n\n")
        for await _ in subscription.signals {
            let portion = subscription.take()
            if portion.isInterrupted { next.writeString("event: interrupted\ndata: {}\n\n") }
            if portion.dropped > 0 {
                next.writeString("event: dropped\ndata: {\"dropped\":\(portion.dropped)}\n\n")
            }
            for event in portion.events { next.writeBytes(event.bytes) }
            // A comment: a sign of life.
            if next.readableBytes == 0 { next.writeString(":\n\n") }
            // This waits for a peer that does not read; `ConnectionGuard` ends the wait.
            try await writer.write(next)
            next = ByteBuffer()
            guard tokens.scopes(of: tokenHash)?.contains(.read) == true else { break }
            try await Task.sleep(for: Self.gathering)
        }
    }
}

extension HTTPField.Name {
    fileprivate static let lastEventID = HTTPField.Name.known("Last-Event-ID")
    /// Proxies such as nginx pass events on at once.
    fileprivate static let xAccelBuffering = HTTPField.Name.known("X-Accel-Buffering")
}

extension Response {
    static func json(_ json: JSON) -> Response {
        text(json.text + "\n", type: "application/json")
    }

    static func text(_ text: String, type: String = "text/plain; charset=utf-8") -> Response {
        Response(
            status: .ok, headers: [.contentType: type],
            body: .init(byteBuffer: ByteBuffer(string: text)))
    }
}
