import CoreMetrics
import HTTPTypes
import Hummingbird

/// Counts the requests to the gateway, and how long their answers take to begin. Labels have few values: methods
/// and paths are the peer's words.
struct RequestMetrics: RouterMiddleware {
    let metrics: OwnMetrics

    static let requests = "nightbell_gateway_requests_total"
    static let duration = "nightbell_gateway_request_duration_seconds"
    private static let methods: Set<HTTPRequest.Method> = [.get, .head, .post]

    func handle(
        _ request: Request, context: Context, next: @concurrent (Request, Context) async throws -> Response
    ) async throws -> Response {
        let start = ContinuousClock.now
        let response = try await next(request, context)
        let method = Self.methods.contains(request.method) ? request.method.rawValue : "other"
        Counter(
            label: Self.requests, dimensions: [("method", method), ("status", "\(response.status.code)")],
            factory: metrics
        ).increment()
        CoreMetrics.Timer(label: Self.duration, dimensions: [], factory: metrics)
            .recordNanoseconds(Int64(start.duration(to: .now) / .nanoseconds(1)))
        return response
    }
}
