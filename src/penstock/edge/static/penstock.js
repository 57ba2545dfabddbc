// penstock.js: publish and subscribe from a browser, over a WebSocket of a Penstock broker.
//
//   import { Penstock } from "http://localhost:8081/penstock.js";
//   const broker = new Penstock("ws://localhost:8081/v1/push");
//   const prices = broker.subscribe("prices", { from: "earliest" }, (record) => {
//     console.log(record.key, record.value);
//   });
//   const { partition, offset } = await broker.publish("prices", "42", { key: "apple" });
//
// One ES module, no build, no dependency. Guarantees:
// - after a broken connection it connects again, and each subscription resumes behind the last
//   record that its handler has finished: a record is handled at least once, in the order of its
//   partition;
// - a record is acknowledged when its handler has returned, or its promise is resolved. A handler
//   that throws ends its subscription, and the record is not acknowledged;
// - `publish` resolves when the record is on the disk of the broker. If the connection breaks
//   before, it rejects: the record may or may not be stored, and the caller decides.
//
// It does not keep records in the browser: positions are lost with the page, unless `group` is set.

const TYPE = { DATA: 1, ACK: 2, SUBSCRIBE: 3, COMMIT_OFFSET: 4, RESET: 5, READY: 6, DISCONNECT: 7, HEARTBEAT: 8 };
const HEAD_BYTES = 13;
const DATA_BYTES = 35;
const HEARTBEAT_MS = 15000;
const SILENCE_MS = 45000;
// The broker accepts messages of 16 MiB and 10,000 frames; smaller ones it stores at once.
const MESSAGE_BYTES = 65536;
const MESSAGE_FRAMES = 1000;
const RETRY_MS_MIN = 500;
const RETRY_MS_MAX = 30000;
const FINAL_CODES = new Set(["SASL_AUTHENTICATION_FAILED"]);

const encoder = new TextEncoder();
const decoder = new TextDecoder();
const strictDecoder = new TextDecoder("utf-8", { fatal: true });

/** A request that the broker refused, or that the connection interrupted. */
export class PenstockError extends Error {
  constructor(message, code = "", retriable = false) {
    super(message);
    this.name = "PenstockError";
    this.code = code;
    this.retriable = retriable;
  }
}

/** A record of a topic. `value` and `key` are texts; `valueBytes` and `keyBytes` are the bytes. */
export class PenstockRecord {
  constructor(fields) {
    Object.assign(this, fields);
  }

  /** The value as text; null for a delete, undefined if it is not UTF-8. */
  get value() {
    return textOf(this.valueBytes);
  }

  /** The key as text; null without a key, undefined if it is not UTF-8. */
  get key() {
    return textOf(this.keyBytes);
  }

  /** The value as JSON. */
  json() {
    return JSON.parse(this.value);
  }
}

function textOf(bytes) {
  if (bytes === null) return null;
  try {
    return strictDecoder.decode(bytes);
  } catch {
    return undefined;
  }
}

function bytesOf(content) {
  if (content === null || content === undefined) return null;
  if (typeof content === "string") return encoder.encode(content);
  if (content instanceof Uint8Array) return content;
  if (content instanceof ArrayBuffer) return new Uint8Array(content);
  throw new TypeError("a key or value is a string, a Uint8Array, an ArrayBuffer or null");
}

function frame(type, id, payload = new Uint8Array(0)) {
  const found = new Uint8Array(HEAD_BYTES + payload.length);
  const view = new DataView(found.buffer);
  view.setUint8(0, type);
  view.setBigUint64(1, BigInt(id));
  view.setUint32(9, payload.length);
  found.set(payload, HEAD_BYTES);
  return found;
}

function jsonFrame(type, id, payload) {
  return frame(type, id, encoder.encode(JSON.stringify(payload)));
}

function dataFrame(id, subscription, key, value, headers, partition, timestamp) {
  const named = headers.map(([name, content]) => [encoder.encode(name), bytesOf(content)]);
  let size = DATA_BYTES + (key === null ? 0 : key.length) + (value === null ? 0 : value.length);
  for (const [name, content] of named) size += 6 + name.length + (content === null ? 0 : content.length);
  const payload = new Uint8Array(size);
  const view = new DataView(payload.buffer);
  view.setUint16(0, subscription);
  view.setInt32(2, partition);
  view.setBigInt64(6, -1n);
  view.setBigInt64(14, BigInt(timestamp));
  view.setInt32(22, -1);
  view.setUint16(26, 0);
  view.setUint8(28, value === null ? 1 : 0);
  view.setUint16(29, named.length);
  view.setInt32(31, key === null ? -1 : key.length);
  let place = DATA_BYTES;
  const put = (bytes) => {
    payload.set(bytes, place);
    place += bytes.length;
  };
  if (key !== null) put(key);
  for (const [name, content] of named) {
    view.setUint16(place, name.length);
    place += 2;
    put(name);
    view.setInt32(place, content === null ? -1 : content.length);
    place += 4;
    if (content !== null) put(content);
  }
  if (value !== null) put(value);
  return frame(TYPE.DATA, id, payload);
}

function readData(payload) {
  const view = new DataView(payload.buffer, payload.byteOffset, payload.byteLength);
  let place = DATA_BYTES;
  const take = (length) => {
    const found = payload.slice(place, place + length);
    place += length;
    return found;
  };
  const keyLength = view.getInt32(31);
  const keyBytes = keyLength < 0 ? null : take(keyLength);
  const headers = [];
  for (let left = view.getUint16(29); left > 0; left -= 1) {
    const nameLength = view.getUint16(place);
    place += 2;
    const name = decoder.decode(take(nameLength));
    const length = view.getInt32(place);
    place += 4;
    headers.push([name, length < 0 ? null : take(length)]);
  }
  const isDelete = view.getUint8(28) === 1;
  return {
    subscription: view.getUint16(0),
    partition: view.getInt32(2),
    offset: Number(view.getBigInt64(6)),
    timestamp: Number(view.getBigInt64(14)),
    deliveryCount: view.getUint16(26),
    headers,
    keyBytes,
    valueBytes: isDelete ? null : payload.slice(place),
  };
}

function* framesOf(buffer) {
  const bytes = new Uint8Array(buffer);
  const view = new DataView(buffer);
  let place = 0;
  while (place + HEAD_BYTES <= bytes.length) {
    const length = view.getUint32(place + 9);
    const start = place + HEAD_BYTES;
    yield { type: view.getUint8(place), id: Number(view.getBigUint64(place + 1)), payload: bytes.subarray(start, start + length) };
    place = start + length;
  }
}

/** One subscription. It lives over broken connections until `close`. */
export class Subscription {
  constructor(owner, topic, options, handler) {
    this._owner = owner;
    this._handler = handler;
    this._options = options;
    this._queue = Promise.resolve();
    this._session = null;
    this._isQueue = options.mode === "queue";
    this.topic = topic;
    /** Partition to the next offset. */
    this.positions = null;
    this.isClosed = false;
    /** Resolves when the broker has accepted the subscription; rejects if it refuses it. */
    this.ready = new Promise((resolve, reject) => {
      this._resolve = resolve;
      this._reject = reject;
    });
    this.ready.catch(() => {});
  }

  _request() {
    const { group, mode, credit, autoAck } = this._options;
    const found = { topic: this.topic };
    if (group !== undefined) found.group = group;
    if (mode !== undefined) found.mode = mode;
    if (credit !== undefined) found.credit = credit;
    if (autoAck) found.auto_ack = true;
    // Own positions are exact; with a group the committed ones are as good, and shared.
    // A queue has no positions; its topic may select the mode.
    if (this.positions !== null && group === undefined && !this._isQueue) found.from = this.positions;
    else if (this._options.from !== undefined && (group === undefined || this.positions === null)) found.from = this._options.from;
    return found;
  }

  _opened(answer) {
    this._isQueue = answer.mode === "queue";
    if (this.positions === null || this._options.group !== undefined) this.positions = { ...answer.partitions };
    this._resolve(answer);
  }

  _deliver(session, id, data) {
    this._queue = this._queue.then(() => this._handle(session, id, data));
  }

  async _handle(session, id, data) {
    if (this.isClosed || session !== this._owner._session) return;
    try {
      await this._handler(new PenstockRecord({ topic: this.topic, ...data }));
    } catch (error) {
      this._fail(error);
      return;
    }
    if (this.positions !== null) this.positions[data.partition] = data.offset + 1;
    if (!this._options.autoAck) session.send(frame(TYPE.ACK, id));
  }

  _fail(error) {
    this._reject(error);
    this.close();
    this._owner._report(error);
  }

  /** End the subscription. */
  close() {
    if (this.isClosed) return;
    this.isClosed = true;
    this._owner._unsubscribe(this);
  }
}

class Session {
  constructor(owner, url) {
    this._owner = owner;
    this._waiting = new Map();
    this._nextId = 1;
    this._output = [];
    this._publishers = new Map();
    this.subscriptions = new Map();
    this.isOpen = false;
    this.end = null;
    this._heardAt = Date.now();
    this._socket = new WebSocket(url, ["penstock.push.v1"]);
    this._socket.binaryType = "arraybuffer";
    this._socket.onopen = () => {
      this.isOpen = true;
      owner._connected(this);
    };
    this._socket.onmessage = (event) => this._receive(event.data);
    this._socket.onclose = (event) => this._closed(event);
    this._timer = setInterval(() => this._tick(), HEARTBEAT_MS);
  }

  _tick() {
    if (Date.now() - this._heardAt > SILENCE_MS) this._socket.close();
    else if (this.isOpen) this.send(frame(TYPE.HEARTBEAT, 0));
  }

  /** Frames of one turn of the event loop are sent together, in messages that the broker accepts. */
  send(bytes) {
    if (!this.isOpen) return;
    if (this._output.length === 0) queueMicrotask(() => this._flush());
    this._output.push(bytes);
  }

  _flush() {
    const output = this._output;
    this._output = [];
    let together = [];
    let size = 0;
    for (const one of output) {
      if (together.length > 0 && (size + one.length > MESSAGE_BYTES || together.length >= MESSAGE_FRAMES)) {
        this._sendTogether(together, size);
        together = [];
        size = 0;
      }
      together.push(one);
      size += one.length;
    }
    if (together.length > 0) this._sendTogether(together, size);
  }

  _sendTogether(frames, size) {
    if (!this.isOpen) return;
    const message = new Uint8Array(size);
    let place = 0;
    for (const one of frames) {
      message.set(one, place);
      place += one.length;
    }
    this._socket.send(message);
  }

  request(build) {
    const id = this._nextId;
    this._nextId += 1;
    return new Promise((resolve, reject) => {
      this._waiting.set(id, { resolve, reject });
      this.send(build(id));
    });
  }

  subscribe(request, subscription) {
    return this.request((id) => {
      // DATA may follow the answer in the same message: its number must be known then.
      this._waiting.get(id).subscription = subscription;
      return jsonFrame(TYPE.SUBSCRIBE, id, { ...request, ...this._owner._credentials });
    });
  }

  publisher(topic) {
    let found = this._publishers.get(topic);
    if (found === undefined) {
      found = this.subscribe({ topic, publish: true }, null);
      this._publishers.set(topic, found);
      found.catch(() => this._publishers.delete(topic));
    }
    return found;
  }

  forgetPublisher(topic) {
    this._publishers.delete(topic);
  }

  _receive(buffer) {
    this._heardAt = Date.now();
    for (const one of framesOf(buffer)) {
      if (one.type === TYPE.DATA) this._data(one);
      else if (one.type === TYPE.ACK) this._answer(one);
      else if (one.type === TYPE.DISCONNECT) this.end = one.payload.length ? JSON.parse(decoder.decode(one.payload)) : {};
    }
  }

  _data(one) {
    const data = readData(one.payload);
    const subscription = this.subscriptions.get(data.subscription);
    if (subscription !== undefined) subscription._deliver(this, one.id, data);
  }

  _answer(one) {
    const waiting = this._waiting.get(one.id);
    if (waiting === undefined) return;
    this._waiting.delete(one.id);
    const found = one.payload.length ? JSON.parse(decoder.decode(one.payload)) : {};
    if (found.error !== undefined) {
      waiting.reject(new PenstockError(found.error, found.code, found.retriable));
      return;
    }
    if (waiting.subscription) {
      this.subscriptions.set(found.subscription, waiting.subscription);
      waiting.subscription._opened(found);
    }
    waiting.resolve(found);
  }

  _closed(event) {
    this.isOpen = false;
    clearInterval(this._timer);
    const reason = (this.end && this.end.reason) || event.reason || "the connection ended";
    const error = new PenstockError(reason, (this.end && this.end.code) || "", true);
    for (const one of this._waiting.values()) one.reject(error);
    this._waiting.clear();
    this._owner._disconnected(this, error);
  }

  close() {
    this.send(frame(TYPE.DISCONNECT, 0));
    this._flush();
    this._socket.close();
  }
}

/** A client of one broker, which connects again whenever its connection breaks. */
export class Penstock extends EventTarget {
  /**
   * @param {string} url such as "ws://localhost:8081/v1/push"
   * @param {{user?: string, password?: string, token?: string}} credentials
   */
  constructor(url, credentials = {}) {
    super();
    this._url = url;
    this._credentials = credentials;
    this._subscriptions = new Set();
    this._session = null;
    this._retryMs = RETRY_MS_MIN;
    this._timer = null;
    this._whenOpen = [];
    this.isClosed = false;
    this._connect();
  }

  /** Whether the connection is open now. Events: "open", "close" and "error". */
  get isConnected() {
    return this._session !== null && this._session.isOpen;
  }

  /**
   * Call `handler` with each record of a topic; it may return a promise.
   * Options: from ("latest", "earliest" or {partition: offset}), group, mode, credit, autoAck.
   * @returns {Subscription}
   */
  subscribe(topic, options, handler) {
    const subscription = new Subscription(this, topic, options || {}, handler);
    this._subscriptions.add(subscription);
    if (this.isConnected) this._open(this._session, subscription);
    return subscription;
  }

  /**
   * Append a record; resolves with {partition, offset} when it is on disk.
   * Options: key, headers ([[name, value]]), partition, timestamp.
   */
  async publish(topic, value, options = {}) {
    let session, publisher, subscription;
    do {
      // A subscription that ends in between ends the publisher of its topic too.
      session = await this._opened();
      publisher = session.publisher(topic);
      ({ subscription } = await publisher);
    } while (session.isOpen && session.publisher(topic) !== publisher);
    const key = bytesOf(options.key);
    const partition = options.partition === undefined ? -1 : options.partition;
    const timestamp = options.timestamp === undefined ? -1 : options.timestamp;
    return session.request((id) => dataFrame(id, subscription, key, bytesOf(value), options.headers || [], partition, timestamp));
  }

  /** End all subscriptions and the connection. */
  close() {
    this.isClosed = true;
    clearTimeout(this._timer);
    for (const one of this._subscriptions) one.isClosed = true;
    this._subscriptions.clear();
    this._reject(new PenstockError("this client is closed"));
    if (this._session !== null) this._session.close();
  }

  _connect() {
    this._session = new Session(this, this._url);
  }

  _opened() {
    if (this.isClosed) return Promise.reject(new PenstockError("this client is closed"));
    if (this.isConnected) return Promise.resolve(this._session);
    return new Promise((resolve, reject) => this._whenOpen.push({ resolve, reject }));
  }

  _reject(error) {
    const waiting = this._whenOpen;
    this._whenOpen = [];
    for (const one of waiting) one.reject(error);
  }

  _connected(session) {
    for (const one of this._subscriptions) this._open(session, one);
    const waiting = this._whenOpen;
    this._whenOpen = [];
    for (const one of waiting) one.resolve(session);
    this.dispatchEvent(new Event("open"));
  }

  async _open(session, subscription) {
    try {
      await session.subscribe(subscription._request(), subscription);
      this._retryMs = RETRY_MS_MIN;
    } catch (error) {
      // A broken connection is tried again with all subscriptions.
      if (!session.isOpen || subscription.isClosed) return;
      const isMissing = error.code === "UNKNOWN_TOPIC_OR_PARTITION" && subscription.positions === null;
      if (isMissing || !error.retriable) {
        subscription._fail(error);
        return;
      }
      setTimeout(() => {
        if (session.isOpen && !subscription.isClosed) this._open(session, subscription);
      }, RETRY_MS_MIN + Math.random() * RETRY_MS_MIN);
    }
  }

  _unsubscribe(subscription) {
    this._subscriptions.delete(subscription);
    const session = this._session;
    if (session === null) return;
    for (const [number, one] of session.subscriptions) {
      if (one === subscription) {
        session.subscriptions.delete(number);
        session.forgetPublisher(subscription.topic);
        session.request((id) => jsonFrame(TYPE.SUBSCRIBE, id, { unsubscribe: subscription.topic })).catch(() => {});
      }
    }
  }

  _report(error) {
    this.dispatchEvent(new CustomEvent("error", { detail: error }));
  }

  _disconnected(session, error) {
    if (session !== this._session) return;
    this._session = null;
    this.dispatchEvent(new CustomEvent("close", { detail: error }));
    if (this.isClosed) return;
    if (FINAL_CODES.has(error.code)) {
      this._report(error);
      this.close();
      return;
    }
    const asked = session.end && session.end.retry_after_ms;
    // Full jitter: clients of a restarted broker do not return at the same moment.
    const wait = asked !== undefined && asked !== null ? asked : Math.random() * this._retryMs;
    this._retryMs = Math.min(2 * this._retryMs, RETRY_MS_MAX);
    this._timer = setTimeout(() => this._connect(), wait);
  }
}
